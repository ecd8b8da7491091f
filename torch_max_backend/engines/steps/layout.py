"""How the words of a table lie: the same for all sizes for which the rows of programs have the same
form."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from torch_max_backend.engines.steps.kernel_rows import KernelRow
from torch_max_backend.engines.steps.planner.plan import (
    KernelStep,
    Memory,
    Place,
    Plan,
    ProgramStep,
    SizeText,
    Step,
    itemsize,
)
from torch_max_backend.engines.steps.rows_by_size import SizedRow


@dataclass
class Addresses:
    """The words of a table that hold addresses, each with the bytes from the start of what is
    there.

    Attributes:
        outputs: Those in each result.
        inputs: Those in each input of the plan.
        temporaries: Those in temporary memory, with its number.
        constants: Those in constants, with the number of the memory.
        filled: Those in memory that sizes fill, with its number.
        packed: Those in packed weights, with the number of the pack.
    """

    outputs: list[list[tuple[int, int]]]
    inputs: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    temporaries: list[tuple[int, int, int]] = field(default_factory=list)
    constants: list[tuple[int, int, int]] = field(default_factory=list)
    filled: list[tuple[int, int, int]] = field(default_factory=list)
    packed: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, word: int, number: int, memory: Memory, offset: int) -> None:
        """Add a word that holds an address in a piece of memory."""
        if memory.kind == "input":
            self.inputs.setdefault(memory.index, []).append((word, offset))
        elif memory.kind == "output":
            self.outputs[memory.index].append((word, offset))
        elif memory.kind == "packed":
            self.packed.append((word, memory.index, offset))
        else:
            by_kind = {"temporary": self.temporaries, "constant": self.constants}
            by_kind.get(memory.kind, self.filled).append((word, number, offset))


@dataclass
class Layout:
    """How the words of a plan's tables lie.

    Attributes:
        forms: Those of the rows of programs.
        words: All words; what sizes and calls tell is to be written over.
        starts: The first word of each row.
        sizes: The words of kernels that hold sizes which are expressions, and these.
    """

    forms: Sequence[object]
    # The addresses whose distance from the start of their memory is known, and the others.
    _addresses: Addresses
    _moved: list[tuple[int, Place]] = field(default_factory=list)
    words: array[int] = field(default_factory=lambda: array("q"))
    starts: list[int] = field(default_factory=list)
    sizes: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def of(
        cls, plan: Plan, kernels: Mapping[int, KernelRow], programs: Mapping[int, SizedRow]
    ) -> Layout:
        """That of a plan.

        Args:
            plan: The plan.
            kernels: The rows of its kernels, by number.
            programs: The rows of its programs.
        """
        addresses = Addresses([[] for _ in plan.outputs])
        made = cls([row.form for row in programs.values()], addresses)
        for number, step in enumerate(plan.steps):
            start = len(made.words)
            made.starts.append(start)
            if isinstance(step, KernelStep):
                kernel = kernels[number]
                made.words.extend(kernel.words)
                made.sizes += [(start + word, size) for word, size in kernel.sizes]
                places = kernel.places
            elif isinstance(step, ProgramStep):
                made.words.extend(programs[number].words)
                places = _places(step, programs[number])
            else:
                # No shell; its length; the flag's address; where the target is, and its number.
                made.words.extend([0, 5, 0, 0, step.target])
                places = [(2, place) for place in step.inputs]
            for word, place in places:
                made._place(plan.memory, start + word, place)
        made._aim(plan.steps)
        return made

    def _place(self, memory: Sequence[Memory], word: int, place: Place) -> None:
        if isinstance(place.offset, str):
            self._moved.append((word, place))
        else:
            of = memory[place.memory]
            self._addresses.add(word, place.memory, of, place.offset * itemsize(of.dtype))

    def _aim(self, steps: Sequence[Step]) -> None:
        """Tell jumps where their targets are."""
        ends = [*self.starts, len(self.words)]
        for start, step in zip(self.starts, steps, strict=True):
            if not isinstance(step, (KernelStep, ProgramStep)):
                self.words[start + 3] = ends[step.target]

    def addresses(self, memory: Sequence[Memory], size: Callable[[SizeText], int]) -> Addresses:
        """The words that hold addresses, for given sizes."""
        if not self._moved:
            return self._addresses
        found = deepcopy(self._addresses)
        for word, place in self._moved:
            of = memory[place.memory]
            found.add(word, place.memory, of, size(place.offset) * itemsize(of.dtype))
        return found


def _places(step: ProgramStep, row: SizedRow) -> list[tuple[int, Place]]:
    _, inputs, outputs = row.form
    found = [(word, step.inputs[i]) for word, i in inputs]
    return found + [(word, step.outputs[i]) for word, i in outputs]
