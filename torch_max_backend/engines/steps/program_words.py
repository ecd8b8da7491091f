"""The words of a program's row, by what they are for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch_max_backend.engines.steps.fused_source import Fusible
from torch_max_backend.engines.steps.programs import Row

# How a slot gets into an output (mojo_kernels/programs/interpreter.mojo): it lies there, is copied
# there, is everywhere the same, is an input that is copied straight, or is a block for a reduction.
THERE, COPY, SAME, STRAIGHT, EXPAND = range(5)


@dataclass
class Words:
    """The words of a row, by what they are for.

    Attributes:
        fills: Constants: slot, bits, bytes of an element.
        loads: Inputs, each with its number.
        once: Instructions that run once.
        uniform: Instructions of each tile whose result is the same all over it.
        steps: The other instructions of each tile.
        stores: Outputs.
        totals: Reductions.
    """

    fills: list[tuple[int, int, int]] = field(default_factory=list)
    loads: list[tuple[int, list[int]]] = field(default_factory=list)
    once: list[list[int]] = field(default_factory=list)
    uniform: list[list[int]] = field(default_factory=list)
    steps: list[list[int]] = field(default_factory=list)
    stores: list[list[int]] = field(default_factory=list)
    totals: list[list[int]] = field(default_factory=list)

    def row(
        self,
        head: Sequence[int],
        order: Sequence[int],
        fused: tuple[Fusible | None, Sequence[int]],
        tasks: int,
        whole: bool,
    ) -> Row:
        """All words one after the other, and where addresses are to be written.

        Args:
            head: What comes first: the words of the head, sizes, tiles, slots.
            order: The inputs in the order in which the row has them.
            fused: What a function of all instructions computes, and its words.
            tasks: As of ``Row``.
            whole: As of ``Row``.
        """
        words, loads = [*head], dict(self.loads)
        for fill in self.fills:
            words += fill
        input_words = [0] * len(loads)
        for number in order:
            input_words[number] = len(words)
            words += loads[number]
        for step in (*self.once, *self.uniform, *self.steps):
            words += step
        output_words = []
        for store in self.stores:
            if store[1] != EXPAND:
                output_words.append(len(words))
            words += store
        for total in self.totals:
            output_words.append(len(words) + 4)
            words += total
        program, slots = fused
        words[18] = len(words)
        words += slots
        words[1] = len(words)
        return Row(tuple(words), tuple(input_words), tuple(output_words), program, tasks, whole)
