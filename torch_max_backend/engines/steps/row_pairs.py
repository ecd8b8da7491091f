"""Steps that become one function of rows: one that reduces rows, and the next one, which reads the
totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch_max_backend.engines.steps.planner.plan import (
    JumpStep,
    Memory,
    Place,
    Plan,
    ProgramStep,
    SizeText,
)
from torch_max_backend.engines.steps.program_space import Space
from torch_max_backend.engines.steps.programs import Row
from torch_max_backend.engines.steps.rowwise import rowwise, section


def pairs(plan: Plan) -> dict[int, int]:
    """The first steps of pairs by their second ones. Between the two, other code may run on other
    rows: what one writes and the other uses belongs to the same row in both."""
    targets = {s.target for s in plan.steps if isinstance(s, JumpStep)}
    found: dict[int, int] = {}
    for i in range(len(plan.steps) - 1):
        a, b = plan.steps[i], plan.steps[i + 1]
        if not isinstance(a, ProgramStep) or not isinstance(b, ProgramStep):
            continue
        if i in found or i + 1 in targets or not a.program.reductions or b.program.reductions:
            continue
        if a.space == b.space and _apart(plan.memory, a, b):
            found[i + 1] = i
    return found


def lives(memory: Sequence[Memory], found: dict[int, int]) -> list[tuple[int, int]]:
    """The first and the last step that use each piece of memory, if pairs run as one."""
    second = {a: b for b, a in found.items()}
    return [(found.get(m.first, m.first), second.get(m.last, m.last)) for m in memory]


def _apart(memory: Sequence[Memory], a: ProgramStep, b: ProgramStep) -> bool:
    """Whether rows can go through both steps one after the other."""
    kept = len(a.space) - a.reduced
    totals = {p.memory for p in a.outputs[len(a.program.outputs) :]}
    if totals.isdisjoint(p.memory for p in b.inputs):
        return False
    if any(memory[p.memory].kind not in ("temporary", "output") for p in (*a.outputs, *b.outputs)):
        return False
    uses = (((*a.inputs, *a.outputs), b.outputs), (a.outputs, (*b.inputs, *b.outputs)))
    return all(
        _same_row(p, q, kept)
        for first, second in uses
        for p in first
        for q in second
        if p.memory == q.memory
    )


def _same_row(p: Place, q: Place, kept: int) -> bool:
    """Whether two places in the same memory are the same elements, or those of the same rows."""
    if p.offset != q.offset or p.strides[:kept] != q.strides[:kept]:
        return False
    inside, other = p.strides[kept:], q.strides[kept:]
    return inside == other or not any(s != 0 for s in (*inside, *other))


def joint(
    a: ProgramStep, b: ProgramStep, rows: tuple[Row, Row], size: Callable[[SizeText], int]
) -> Row | None:
    """The second row of a pair with a function for both; ``None`` if there cannot be one.

    Args:
        a: The first step.
        b: The second.
        rows: Their rows, which are to lie one after the other.
        size: What sizes are.
    """
    if not rows[0].whole:
        return None
    space = [size(n) for n in a.space]
    stored = len(a.program.outputs)

    def strides(places: Iterable[Place]) -> list[list[int]]:
        return [[size(s) for s in place.strides] for place in places]

    try:
        together = Space(
            space,
            len(space) - a.reduced,
            strides((*a.inputs, *b.inputs)),
            strides((*a.outputs[:stored], *b.outputs)),
            strides(a.outputs[stored:]),
        )
    except ValueError:
        return None
    programs = [a.program, b.program]
    fused = rowwise(programs, together)
    if fused is None:
        return None
    first, second = rows
    length = len(first.words)
    before = [w - length for w in (*first.inputs, *first.outputs)]
    inputs = len(a.inputs)
    words = [
        *before[:inputs], *second.inputs, *before[inputs : inputs + stored], *second.outputs,
        *before[inputs + stored :],
    ]  # fmt: skip
    made = [
        *second.words,
        *section(programs, together, words, max(first.tasks, second.tasks)),
    ]
    made[18], made[1] = len(second.words), len(made)
    return Row(tuple(made), second.inputs, second.outputs, fused, second.tasks, second.whole)
