"""Programs as functions of whole rows: what is read lies where it is, and sums stay in registers.

The interpreter and `fused_source` work on blocks, into which they copy what does not lie one
after the other, such as a row that is added to all rows. A function of a row has pointers instead.
What reduces rows can be one function with what follows it, which then finds the row in the caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch_max_backend.engines.steps.program_space import Space
from torch_max_backend.engines.steps.programs import Instruction, Program, Row, dtypes_of, itemsize

# Columns from which going from row to row costs next to nothing, and less than copies to blocks.
LEAST, SHORT = 256, 16
# Columns of a piece of a row, and operands at most (as in mojo_kernels/programs/rowwise.mojo).
_PIECE, _OPERANDS = 16384, 64


@dataclass(frozen=True)
class Phase:
    """A pass over the columns of a row.

    Attributes:
        program: What it computes.
        varying: Of each input whether it varies along the columns.
    """

    program: Program
    varying: tuple[bool, ...]

    def uniform(self) -> list[bool]:
        """Of each value whether it is the same in all columns."""
        same = [not v for v in self.varying]
        for instruction in self.program.instructions:
            same.append(all(same[o] for o in instruction.operands))
        return same


@dataclass(frozen=True)
class Rowwise:
    """What becomes a function of a row: passes one after the other."""

    phases: tuple[Phase, ...]

    @property
    def instructions(self) -> Sequence[Instruction]:
        return [i for phase in self.phases for i in phase.program.instructions]


def rowwise(programs: Sequence[Program], space: Space, copies: bool = False) -> Rowwise | None:
    """A function of the rows of a space for programs that run one after the other; ``None`` if the
    operands do not lie so.

    Args:
        programs: Reductions are the first one's.
        space: With the operands of all, in order.
        copies: Whether each block would have copies of its own.
    """
    rows, columns = math.prod(space.sizes[:-1]), space.sizes[-1]
    reduces = bool(programs[0].reductions)
    least = SHORT if copies and not reduces else LEAST
    if columns < least or rows == 0 or (reduces and space.kept != len(space.sizes) - 1):
        return None
    if any(s[-1] not in (0, 1) for s in space.inputs) or any(s[-1] != 1 for s in space.outputs):
        return None
    if len(space.inputs) + len(space.outputs) + len(space.totals) > _OPERANDS:
        return None
    if reduces and not _same_vectors(programs):
        return None
    phases, inputs = [], iter(space.inputs)
    for program in programs:
        varying = tuple(bool(next(inputs)[-1]) for _ in program.inputs)
        phases.append(Phase(program, varying))
    made = Rowwise(tuple(phases))
    stored = all(not phase.uniform()[v] for phase in phases for _, v in phase.program.reductions)
    several = sum(i.name != "constant" for i in made.instructions) > 1
    # One instruction on what lies in its place is as fast in tiles.
    return made if stored and (several or reduces or len(space.sizes) > 1) else None


def _same_vectors(programs: Sequence[Program]) -> bool:
    """Whether vectors of what is reduced are those of all values, so that numbers are added up in
    the order of the interpreter."""
    reduced = {dtypes_of(p)[v] for p in programs for _, v in p.reductions}
    widest = max(_width(d) for p in programs for d in dtypes_of(p))
    return "bool" not in reduced and all(_width(d) == widest for d in reduced)


def _width(dtype: str) -> int:
    """Bytes of a number in vectors."""
    return 4 if dtype in ("float16", "bfloat16") else itemsize(dtype)


def section(
    programs: Sequence[Program], space: Space, words: Sequence[int], tasks: int
) -> list[int]:
    """The words of a row for its function (see mojo_kernels/programs/rowwise.mojo).

    Args:
        programs: As of ``rowwise``.
        space: The same.
        words: Of the inputs of all programs, their outputs and reductions the words that hold their
            addresses, from the start of the row.
        tasks: Tasks at most.
    """
    sizes, columns = space.sizes[:-1], space.sizes[-1]
    piece = columns if programs[0].reductions or columns < 2 * _PIECE else _PIECE
    several = -(-columns // piece)
    dtypes = [d for p in programs for d in p.inputs]
    dtypes += [dtypes_of(p)[v] for p in programs for v in p.outputs]
    dtypes += [dtypes_of(p)[v] for p in programs for _, v in p.reductions]
    strides = [*space.inputs, *space.outputs, *([*t, 0] for t in space.totals)]
    made = [len(sizes), len(words), columns, piece, several, several * math.prod(sizes), tasks]
    made += sizes
    for word, dtype, along in zip(words, dtypes, strides, strict=True):
        size = itemsize(dtype)
        made += [word, along[-1] * size, *(s * size for s in along[:-1])]
    return made


def by_rows(row: Row, programs: Sequence[Program], space: Space, copies: bool) -> Row:
    """A row that a function of whole rows can take as well, if the operands lie so; the arguments
    as of ``rowwise``."""
    fused = rowwise(programs, space, copies) if row.whole else None
    if fused is None:
        return row
    words = [*row.words, *section(programs, space, [*row.inputs, *row.outputs], row.tasks)]
    words[18], words[1] = len(row.words), len(words)
    return replace(row, words=tuple(words), fused=fused)
