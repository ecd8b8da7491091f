"""Tables: the rows of a plan for given sizes, with the addresses of everything that stays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakSet, finalize

import torch

from torch_max_backend.engines.steps import fused, row_pairs
from torch_max_backend.engines.steps.arena import ALIGNMENT, offsets
from torch_max_backend.engines.steps.fused_source import Fusible
from torch_max_backend.engines.steps.kernel_rows import KernelRow, Places, Words
from torch_max_backend.engines.steps.libraries import block_runner, runner
from torch_max_backend.engines.steps.planner.plan import (
    JumpStep,
    Memory,
    Place,
    Plan,
    ProgramStep,
    SizeText,
    Step,
    itemsize,
)
from torch_max_backend.engines.steps.planner.sizes import dense_strides
from torch_max_backend.engines.steps.program_libraries import NOTHING
from torch_max_backend.engines.steps.program_libraries import addresses as addresses_of_programs
from torch_max_backend.engines.steps.program_pairs import Operand, Paired, paired
from torch_max_backend.engines.steps.program_rows import encode
from torch_max_backend.engines.steps.programs import Row
from torch_max_backend.errors import ExecutionError
from torch_max_backend.runtime import large

# Characters of an error of a kernel.
_TEXT = 2048


@dataclass
class Shared:
    """What is the same for all sizes of a plan.

    Attributes:
        kernels: The rows of kernels as far as they are, by number.
        static: The numbers of the rows of programs that are, as no size of them is an expression.
        constants: The addresses of the plan's constants.
        programs: Those of ``static`` that were made.
    """

    kernels: Mapping[int, KernelRow]
    static: Collection[int]
    constants: Sequence[int]
    programs: dict[int, tuple[Paired, Row]] = field(default_factory=dict)


class Sized:
    """A plan for given sizes: what all its tables share.

    Args:
        plan: The plan.
        symbols: The values of its symbols.
        values: The value of each size that is an expression.
        shared: What is the same for other sizes.
    """

    def __init__(
        self,
        plan: Plan,
        symbols: tuple[int, ...],
        values: Mapping[str, int],
        shared: Shared,
    ) -> None:
        self.plan = plan
        self.symbols = symbols
        self._values = values
        self._shared = shared
        for a, b in plan.checks:
            if self.size(a) != self.size(b):
                told = " and ".join(
                    str(text) if isinstance(text, int) else f"{text} = {self.size(text)}"
                    for text in (a, b)
                )
                raise ExecutionError(f"Two sizes that the graph takes for equal are not: {told}.")
        self._filled = self._fill()
        # Sizes, strides and dtype of each result.
        shapes = [tuple(map(self.size, shape)) for _, shape in plan.outputs]
        self.outputs = [
            (shape, _dense(shape), getattr(torch, dtype))
            for shape, (dtype, _) in zip(shapes, plan.outputs, strict=True)
        ]
        temporary = [i for i, m in enumerate(plan.memory) if m.kind == "temporary"]
        # Of steps that may become one function, the first one by the second.
        self._pairs = row_pairs.pairs(plan)
        lives = row_pairs.lives([plan.memory[i] for i in temporary], self._pairs)
        placed, self.arena = offsets([self.bytes(plan.memory[i]) for i in temporary], lives)
        self._offsets = dict(zip(temporary, placed, strict=True))
        # By the number of a row, what can be compiled for it.
        self.programs: dict[int, Fusible | None] = {}
        self._encoded: dict[int, Row] = {}
        # (words of a row, [(word, memory, bytes from its start)])
        self.rows = [self._row(i, step) for i, step in enumerate(plan.steps)]
        self._tables: WeakSet[Table] = WeakSet()
        # Whether each call takes memory for temporaries that other graphs take as well.
        self.shares = self.arena >= large.LARGE
        if self.shares:
            finalize(self, large.drop_idle).atexit = False
        # Tables that no call uses now.
        self.free: list[Table] = []
        # What answers calls, and how often the general way did.
        self.call: Callable[[list[Any]], list[Any]] | None = None
        self.calls = 0

    def size(self, text: SizeText) -> int:
        return text if isinstance(text, int) else self._values[text]

    def bytes(self, memory: Memory) -> int:
        return self.size(memory.size) * itemsize(memory.dtype)

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

    def address(self, number: int) -> int:
        """Where memory of the plan lies, temporaries from the start of their arena; 0 if each call
        tells."""
        memory = self.plan.memory[number]
        if memory.kind == "constant":
            return self._shared.constants[memory.index]
        if memory.kind in ("sizes", "range"):
            return self._filled[number].data_ptr()
        if memory.kind == "temporary":
            return self._offsets[number]
        return 0

    def _row(self, number: int, step: Step) -> tuple[Words, Places]:
        if isinstance(step, ProgramStep):
            return self._program(number, step)
        if isinstance(step, JumpStep):
            # No shell; its length; the flag's address; where the target is, and its number.
            flags = [(2, p.memory, self._offset(p)) for p in step.inputs]
            return [0, 5, 0, 0, step.target], flags
        return self._shared.kernels[number].filled(self._values)

    def _offset(self, place: Place) -> int:
        return self.size(place.offset) * itemsize(self.plan.memory[place.memory].dtype)

    def _program(self, number: int, step: ProgramStep) -> tuple[Words, Places]:
        form, row = self._shared.programs.get(number) or self._encode(number, step)
        if form.program is step.program:
            row = self._paired(number, step, row)
        else:
            self._pairs.pop(number, None)
        self.programs[number] = row.fused
        self._encoded[number] = row
        found = [(w, step.inputs[i]) for w, i in zip(row.inputs, form.inputs, strict=True)]
        found += [(w, step.outputs[i]) for w, i in zip(row.outputs, form.outputs, strict=True)]
        places = [(word, p.memory, self._offset(p)) for word, p in found]
        return row.words, places

    def _encode(self, number: int, step: ProgramStep) -> tuple[Paired, Row]:
        form = paired(step.program, self._operands(step.inputs), self._operands(step.outputs))
        row = encode(
            form.program,
            [self.size(n) for n in step.space],
            form.input_strides,
            form.output_strides,
            # Memory of their own is never where another's is.
            apart={p.memory for p in step.inputs}.isdisjoint(p.memory for p in step.outputs),
        )
        if number in self._shared.static:
            self._shared.programs[number] = form, row
        return form, row

    def _operands(self, places: Sequence[Place]) -> list[Operand]:
        return [
            Operand(p.memory, self.size(p.offset), tuple(self.size(s) for s in p.strides))
            for p in places
        ]

    def _paired(self, number: int, step: ProgramStep, row: Row) -> Row:
        """A row with a function for the step before as well, if there can be one."""
        before = self._pairs.get(number)
        if before is None:
            return row
        first = self.plan.steps[before]
        assert isinstance(first, ProgramStep), "pairs are of programs"
        made = row_pairs.joint(first, step, (self._encoded[before], row), self.size)
        if made is None:
            del self._pairs[number]
            return row
        self.programs[before] = None
        return made

    def swap(self) -> None:
        """Have compiled code run the programs for which there is some now. A call that runs
        meanwhile takes the one or the other for each row."""
        for number, program in self.programs.items():
            if found := fused.address(program):
                self._set(number, found)
                if number in self._pairs:
                    # Now that the second row does it too.
                    self._set(self._pairs[number], addresses_of_programs[NOTHING,])

    def _set(self, number: int, address: int) -> None:
        """Have another function run a row."""
        words, places = self.rows[number]
        self.rows[number] = [address, *words[1:]], places
        for table in list(self._tables):
            table.words[table.starts[number]] = address

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
    return tuple(max(s, 1) for s in dense_strides(shape) if isinstance(s, int))


class Table:
    """The rows of a plan in memory, for one call at a time.

    Attributes:
        inputs: For each input of the model the words that hold an address in it.
        outputs: For each result the same.
    """

    def __init__(self, sized: Sized) -> None:
        self.sized = sized
        self._text = torch.zeros(_TEXT, dtype=torch.uint8, device="cpu")
        self._context = torch.tensor(
            [self._text.data_ptr(), _TEXT, 0, 0], dtype=torch.int64, device="cpu"
        )
        self.rows = len(sized.rows)
        self.inputs: dict[int, list[tuple[int, int]]] = {}
        self.outputs: list[list[tuple[int, int]]] = [[] for _ in sized.outputs]
        self.starts: list[int] = []
        # For each word with an address of a temporary, how far that is from the arena's start.
        self._temporaries: list[tuple[int, int]] = []
        words = self._filled(sized)
        self._words = torch.empty(len(words), dtype=torch.int64, device="cpu")
        of_words: Any = ctypes.c_int64 * len(words)
        self.words = of_words.from_address(self._words.data_ptr())
        self.words[:] = words
        self._arena: torch.Tensor | None = None
        self._start = 0
        if not sized.shares:
            self._arena = torch.empty(sized.arena + ALIGNMENT, dtype=torch.uint8, device="cpu")
            self._place(self._arena.data_ptr())
        # The addresses of inputs that rarely move, as they are in the table.
        self.known: list[int] = []
        # What stands in for inputs: dense copies, and numbers.
        self.copies: dict[int, torch.Tensor] = {}
        self.numbers: dict[int, Any] = {}
        self._block = torch.tensor(
            [self._words.data_ptr(), self.rows, self._context.data_ptr()],
            dtype=torch.int64,
            device="cpu",
        )
        # What the loop over the rows takes.
        self.block = self._block.data_ptr()
        sized.add(self)

    def _filled(self, sized: Sized) -> list[int]:
        """The words of all rows, with the addresses that are known; notes where others come."""
        found: list[int] = []
        memories = sized.plan.memory
        temporaries, inputs, outputs = self._temporaries, self.inputs, self.outputs
        for words, places in sized.rows:
            at = len(found)
            self.starts.append(at)
            found += words
            for word, number, offset in places:
                memory = memories[number]
                kind = memory.kind
                if kind == "temporary":
                    temporaries.append((at + word, sized.address(number) + offset))
                elif kind == "input":
                    inputs.setdefault(memory.index, []).append((at + word, offset))
                elif kind == "output":
                    outputs[memory.index].append((at + word, offset))
                else:
                    found[at + word] = sized.address(number) + offset
        for start, step in zip(self.starts, sized.plan.steps, strict=True):
            if isinstance(step, JumpStep):
                found[start + 3] = [*self.starts, len(found)][step.target]
        return found or [0]

    def enter(self) -> torch.Tensor:
        """Memory for the temporaries of one call, to be held until that ends; for tables whose
        ``sized.shares``."""
        arena = large.temporary(self.sized.arena + ALIGNMENT)
        self._place(arena.data_ptr())
        return arena

    def _place(self, start: int) -> None:
        start += -start % ALIGNMENT
        if start != self._start:
            self._start = start
            words = self.words
            for word, offset in self._temporaries:
                words[word] = start + offset

    def run(self, ticks: torch.Tensor | None = None) -> int:
        """Run all rows; -1, or the number of the row that failed.

        Args:
            ticks: Where the nanoseconds of each row are to be stored.
        """
        if ticks is None:
            return block_runner()(self.block)
        return runner(timed=True)(*self._block.tolist(), ticks.data_ptr())

    def error(self) -> str:
        length = int(self._context[2])
        return bytes(self._text[:length].tolist()).decode(errors="replace")
