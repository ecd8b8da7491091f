"""A plan for given sizes: what all its tables share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, finalize

import torch

from torch_max_backend.engines.steps import fused
from torch_max_backend.engines.steps.arena import offsets
from torch_max_backend.engines.steps.planner.plan import SizeText
from torch_max_backend.engines.steps.program_libraries import NOTHING
from torch_max_backend.engines.steps.program_libraries import addresses as addresses_of_programs
from torch_max_backend.engines.steps.rows_by_size import SizedRow
from torch_max_backend.engines.steps.shared import Shared
from torch_max_backend.errors import ExecutionError
from torch_max_backend.runtime import large

if TYPE_CHECKING:
    from torch_max_backend.engines.steps.table import Table


class Sized:
    """A plan for given sizes.

    Args:
        shared: What is the same for other sizes.
        symbols: The values of the plan's symbols.
        values: The value of each size that is an expression.

    Attributes:
        outputs: Sizes, strides and dtype of each result.
        arena: Bytes of all temporaries.
        words: The words of a table, as far as sizes tell them.
        starts: The first word of each row.
        addresses: The words that hold addresses which calls tell.
        temporaries: The words that hold addresses of temporaries, and how far these are from the
            arena's start.
        programs: By the number of a row, what can be compiled for it.
        shares: Whether each call takes memory for temporaries that other graphs take as well.
        free: Tables that no call uses now.
        call: What answers calls, if that is not the general way.
        calls: How often the general way did.
    """

    def __init__(self, shared: Shared, symbols: tuple[int, ...], values: Mapping[str, int]) -> None:
        plan = self.plan = shared.plan
        self.symbols = symbols
        self._values = values
        for a, b in plan.checks:
            if self.size(a) != self.size(b):
                told = " and ".join(
                    str(text) if isinstance(text, int) else f"{text} = {self.size(text)}"
                    for text in (a, b)
                )
                raise ExecutionError(f"Two sizes that the graph takes for equal are not: {told}.")
        shapes = [tuple(map(self.size, shape)) for _, shape in plan.outputs]
        self.outputs = [
            (shape, _dense(shape), getattr(torch, dtype))
            for shape, (dtype, _) in zip(shapes, plan.outputs, strict=True)
        ]
        sizes = [
            self.size(plan.memory[i].size) * width
            for i, width in zip(shared.temporaries, shared.widths, strict=True)
        ]
        placed, self.arena = offsets(sizes, shared.lives)
        rows = {number: by_size.of(values) for number, by_size in shared.programs.items()}
        # Of rows whose function does the row before as well, that one.
        self._joined = {n: shared.pairs[n] for n, row in rows.items() if row.joined}
        done = {*self._joined.values()}
        self.programs = {n: None if n in done else row.fused for n, row in rows.items()}
        self._filled = self._fill()
        self._write(shared, rows, dict(zip(shared.temporaries, placed, strict=True)))
        self._tables: WeakSet[Table] = WeakSet()
        self.shares = self.arena >= large.LARGE
        if self.shares:
            finalize(self, large.drop_idle).atexit = False
        self.free: list[Table] = []
        self.call: Callable[[list[Any]], list[Any]] | None = None
        self.calls = 0

    def size(self, text: SizeText) -> int:
        return text if isinstance(text, int) else self._values[text]

    def _fill(self) -> dict[int, torch.Tensor]:
        """Memory whose contents the sizes tell."""
        filled = {}
        for number, sizes in self.plan.sizes.items():
            dtype = getattr(torch, self.plan.memory[number].dtype)
            filled[number] = torch.tensor([self.size(s) for s in sizes], dtype=dtype, device="cpu")
        for number, (start, step) in self.plan.ranges.items():
            count = torch.arange(self.size(self.plan.memory[number].size), device="cpu")
            filled[number] = count * self.size(step) + self.size(start)
        return filled

    def _write(
        self, shared: Shared, rows: Mapping[int, SizedRow], placed: Mapping[int, int]
    ) -> None:
        """The words: those for other sizes, with these sizes written over."""
        layout = shared.layout(rows)
        words = self.words = layout.words[:]
        self.starts = layout.starts
        for word, text in layout.sizes:
            words[word] = self._values[text]
        for number, row in rows.items():
            start = layout.starts[number]
            words[start : start + len(row.words)] = row.words
        memory = self.plan.memory
        self.addresses = layout.addresses(memory, self.size)
        for word, number, offset in self.addresses.constants:
            words[word] = shared.constants[memory[number].index] + offset
        for word, number, offset in self.addresses.filled:
            words[word] = self._filled[number].data_ptr() + offset
        self.temporaries = [(w, placed[n] + offset) for w, n, offset in self.addresses.temporaries]

    def swap(self) -> None:
        """Have compiled code run the programs for which there is some now. A call that runs
        meanwhile takes the one or the other for each row."""
        for number, program in self.programs.items():
            if found := fused.address(program):
                self._set(number, found)
                if number in self._joined:
                    # Now that the second row does it too.
                    self._set(self._joined[number], addresses_of_programs[NOTHING,])

    def _set(self, number: int, address: int) -> None:
        """Have another function run a row."""
        start = self.starts[number]
        self.words[start] = address
        for table in list(self._tables):
            table.words[start] = address

    def retire(self) -> None:
        """Let go of the tables, which hold these sizes in turn: Python finds such circles late, and
        their memory is large."""
        self.free.clear()
        self.call = None

    def add(self, table: Table) -> None:
        """Called with each table that is made."""
        self._tables.add(table)
        self.swap()


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of torch's own."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
