"""A plan as text, one line a step, and the time that each kind of step took."""

from __future__ import annotations

from collections.abc import Sequence

from torch_max_backend.engines.steps.planner.plan import (
    JumpStep,
    KernelStep,
    Place,
    Plan,
    ProgramStep,
    Step,
)
from torch_max_backend.engines.steps.planner.sizes import dense_strides
from torch_max_backend.engines.steps.programs import Program
from torch_max_backend.log import several

_SHORT = {"temporary": "t", "input": "in", "output": "out", "constant": "c", "packed": "w"}


def text_of(plan: Plan) -> str:
    """The plan, one line a step: its results, what it does, what it reads, the operators behind
    it. Memory is ``t3`` (temporary), ``in0``, ``out0``, ``c2`` (constant), ``w1`` (packed weights);
    strides are shown where a view is not dense. What follows once sizes are counted comes
    behind."""
    first, *others = map(_stage, plan.stages)
    return "\n".join([first, *(f"then {other}" for other in others)])


def _stage(plan: Plan) -> str:
    counted = f", counting {', '.join(plan.then.names)}" if plan.then is not None else ""
    lines = [several(len(plan.steps), "step") + counted]
    for number, step in enumerate(plan.steps):
        if isinstance(step, JumpStep):
            unless = "".join(f" unless {_operand(p, plan)}" for p in step.inputs)
            lines.append(f"{number:4} go on at {step.target}{unless}  # {step.origin}")
            continue
        results = ", ".join(_place(p, plan) for p in step.outputs)
        operands = ", ".join(_operand(p, plan) for p in step.inputs)
        lines.append(f"{number:4} {results} = {name_of(step)}({operands})  # {step.origin}")
        if isinstance(step, ProgramStep):
            lines += [f"       {line}" for line in _program(step.program)]
    return "\n".join(lines)


def name_of(step: Step) -> str:
    """A kernel with its parameters, or the instructions of a program."""
    if isinstance(step, KernelStep):
        parameters = ", ".join(f"{k}={v}" for k, v in step.parameters.items())
        return f"{step.symbol}[{parameters}]" if parameters else step.symbol
    if isinstance(step, JumpStep):
        return "jump"
    names = [i.name for i in step.program.instructions if i.name != "constant"]
    names += [kind for kind, _ in step.program.reductions]
    shown = " ".join(names[:6]) + (" ..." if len(names) > 6 else "")
    return f"program[{shown or 'copy'}]"


def _program(program: Program) -> list[str]:
    base = len(program.inputs)
    lines = []
    for i, instruction in enumerate(program.instructions):
        operands = ", ".join(f"%{o}" for o in instruction.operands)
        if instruction.name == "constant":
            operands = str(instruction.constant)
        lines.append(f"%{base + i} = {instruction.name}({operands}): {instruction.dtype}")
    return lines


def _operand(place: Place, plan: Plan) -> str:
    memory = plan.memory[place.memory]
    if memory.kind == "constant" and memory.size == 1:
        return str(plan.constants[memory.index].item())
    return _place(place, plan)


def _place(place: Place, plan: Plan) -> str:
    memory = plan.memory[place.memory]
    name = _SHORT.get(memory.kind, memory.kind)
    number = place.memory if memory.kind in ("temporary", "sizes", "range") else memory.index
    shown = f"{name}{number}:{memory.dtype}[{', '.join(map(str, place.shape))}]"
    static = all(isinstance(n, int) for n in (*place.shape, *place.strides))
    dense = not static or tuple(place.strides) == tuple(dense_strides(place.shape))  # type: ignore[arg-type]
    if not dense or place.offset != 0:
        shown += f"@{place.offset}({', '.join(map(str, place.strides))})"
    return shown


def times_table(steps: Sequence[Step], nanoseconds: Sequence[int], calls: int) -> str:
    """What steps took: name, how many, microseconds a call, share, the longest first.

    Args:
        steps: The steps.
        nanoseconds: Of each step, all calls together.
        calls: How many.
    """
    total = max(sum(nanoseconds), 1)
    groups: dict[str, list[int]] = {}
    for step, spent in zip(steps, nanoseconds, strict=True):
        groups.setdefault(name_of(step), []).append(spent)
    rows = [("us a call", "share", "steps", "name")]
    for name, times in sorted(groups.items(), key=lambda g: -sum(g[1])):
        each = sum(times) / 1e3 / max(calls, 1)
        rows.append((f"{each:.1f}", f"{100 * sum(times) / total:.1f}%", str(len(times)), name))
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    return "\n".join("  ".join([*(r[i].rjust(widths[i]) for i in range(3)), r[3]]) for r in rows)
