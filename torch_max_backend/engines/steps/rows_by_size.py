"""The rows of a program step, by the sizes that tell them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from torch_max_backend.engines.steps import row_pairs
from torch_max_backend.engines.steps.fused_source import Fusible
from torch_max_backend.engines.steps.planner.plan import Place, ProgramStep, SizeText, Step
from torch_max_backend.engines.steps.program_pairs import Operand, paired
from torch_max_backend.engines.steps.program_rows import encode
from torch_max_backend.engines.steps.programs import Row


def sizes_of(step: Step) -> Iterator[SizeText]:
    """All sizes, strides and offsets of a step."""
    for place in (*step.outputs, *step.inputs):
        yield from place.shape
        yield from place.strides
        yield place.offset
    if isinstance(step, ProgramStep):
        yield from step.space


@dataclass(frozen=True)
class SizedRow:
    """A row of a program step for given sizes.

    Attributes:
        row: The row of the program alone.
        words: Its int64 words, with those for a function for the step before as well.
        fused: What can be compiled for it.
        joined: Whether that does the step before as well.
        form: How many words there are, and of each input and output the word that holds its address
            and its number in the step: a table lies the same for all rows of a form.
    """

    row: Row
    words: array[int]
    fused: Fusible | None
    joined: bool
    form: tuple[int, Sequence[tuple[int, int]], Sequence[tuple[int, int]]]


class RowsBySize:
    """The rows of a program step; those of the last sizes are kept.

    Args:
        step: The step.
        before: Those of the step before, if both may become one function.
    """

    KEPT = 64

    def __init__(self, step: ProgramStep, before: RowsBySize | None = None) -> None:
        self.step = step
        used = [*sizes_of(step), *(() if before is None else sizes_of(before.step))]
        self._texts = [*dict.fromkeys(size for size in used if isinstance(size, str))]
        self._made = lru_cache(self.KEPT)(partial(_row, step, before, self._texts))

    def of(self, values: Mapping[str, int]) -> SizedRow:
        """The row for given values of the sizes that are expressions."""
        return self._made(*[values[text] for text in self._texts])


def _row(
    step: ProgramStep, before: RowsBySize | None, texts: Sequence[str], *numbers: int
) -> SizedRow:
    """The row of a step for given values of expressions."""
    values = dict(zip(texts, numbers, strict=True))

    def size(text: SizeText) -> int:
        return text if isinstance(text, int) else values[text]

    def operands(places: Sequence[Place]) -> list[Operand]:
        return [
            Operand(p.memory, size(p.offset), tuple(size(s) for s in p.strides)) for p in places
        ]

    made = paired(step.program, operands(step.inputs), operands(step.outputs))
    row = encode(
        made.program,
        [size(n) for n in step.space],
        made.input_strides,
        made.output_strides,
        # Memory of their own is never where another's is.
        apart={p.memory for p in step.inputs}.isdisjoint(p.memory for p in step.outputs),
    )
    joint = None
    if before is not None and made.program is step.program:
        rows = before.of(values).row, row
        joint = row_pairs.joint(before.step, step, rows, size)
    words, fused = (row.words, row.fused) if joint is None else (joint.words, joint.fused)
    inputs, outputs = (
        tuple(zip(words_of, numbers_of, strict=True))
        for words_of, numbers_of in ((row.inputs, made.inputs), (row.outputs, made.outputs))
    )
    form = len(words), inputs, outputs
    return SizedRow(row, array("q", words), fused, joint is not None, form)
