"""Whether what was read is a plan: nothing of it is believed before addresses are computed."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable

import torch

from torch_max_backend.engines.steps.planner.plan import (
    JumpStep,
    Place,
    Plan,
    ProgramStep,
    Then,
)
from torch_max_backend.engines.steps.programs import Program

_DTYPES = frozenset(
    str(value).removeprefix("torch.")
    for value in vars(torch).values()
    if isinstance(value, torch.dtype)
)
_KINDS = ("input", "output", "constant", "sizes", "range", "temporary")
_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
# Inputs of a model, and dims of a tensor or program.
_MOST_INPUTS, _MOST_DIMS = 1 << 20, 64
_LARGEST = 1 << 62


def validate(plan: Plan) -> None:
    """Check that all parts of a plan fit together, as far as sizes are known.

    Raises:
        ValueError: They do not.
    """
    _check_memory(plan)
    for number, step in enumerate(plan.steps):
        for place in (*step.outputs, *step.inputs):
            _check_place(plan, number, place)
        for place in step.outputs:
            if plan.memory[place.memory].kind in ("constant", "sizes", "range"):
                raise ValueError("a step writes to what does not change")
        if isinstance(step, ProgramStep):
            _check_program(step.program, step)
        if isinstance(step, JumpStep):
            _check_jump(plan, step)
    for name, (given, axis) in plan.symbols.items():
        if not _NAME.fullmatch(name) or keyword.iskeyword(name):
            raise ValueError("a symbol has a wrong name")
        if not 0 <= given < _MOST_INPUTS or not 0 <= axis < _MOST_DIMS:
            raise ValueError("a symbol has a wrong source")
    if plan.then is not None:
        _check_then(plan, plan.then)
        validate(plan.then.plan)


def _check_then(plan: Plan, then: Then) -> None:
    if not 0 < len(then.names) <= len(plan.outputs):
        raise ValueError("a plan counts nothing, or more than it returns")
    counts = plan.outputs[-len(then.names) :]
    if any(dtype != "int64" or any(n != 1 for n in shape) for dtype, shape in counts):
        raise ValueError("a count is no number")
    if then.plan.symbols.keys() - plan.symbols.keys() - set(then.names):
        raise ValueError("a symbol of the plan that follows is unknown")
    following = then.plan
    made = following.outputs if following.then is None else following.then.results
    for before, k in then.results:
        if not 0 <= k < len(plan.outputs if before else made):
            raise ValueError("a result is of no plan")


def _check_jump(plan: Plan, step: JumpStep) -> None:
    if not 0 <= step.target <= len(plan.steps):
        raise ValueError("a jump leads to no step")
    flags = step.inputs
    if len(flags) > 1 or any(plan.memory[p.memory].dtype != "bool" or p.shape for p in flags):
        raise ValueError("a jump depends on what is no flag")


def _check_memory(plan: Plan) -> None:
    steps = len(plan.steps)
    counts: dict[str, Callable[[int], bool]] = {
        "input": lambda i: i < _MOST_INPUTS,
        "output": lambda i: i < len(plan.outputs),
        "constant": lambda i: i < len(plan.constants),
    }
    for number, memory in enumerate(plan.memory):
        if memory.kind not in _KINDS or memory.dtype not in _DTYPES:
            raise ValueError("the kind or dtype of a memory is unknown")
        if isinstance(memory.size, int) and not 0 <= memory.size < _LARGEST:
            raise ValueError("a memory has a wrong size")
        if memory.index < 0 or not counts.get(memory.kind, lambda i: True)(memory.index):
            raise ValueError("a memory has a wrong index")
        if not 0 <= memory.first <= memory.last <= max(steps, 1):
            raise ValueError("a memory lives at a wrong time")
        if memory.kind == "constant":
            constant = plan.constants[memory.index]
            if memory.size != constant.numel() or memory.dtype != _name(constant):
                raise ValueError("a constant is not what its memory says")
        if memory.kind == "sizes" and memory.size != len(plan.sizes[number]):
            raise ValueError("a list of sizes is not as long as its memory")
        if memory.kind == "range" and number not in plan.ranges:
            raise ValueError("a range is missing")
    for dtype, _ in plan.outputs:
        if dtype not in _DTYPES:
            raise ValueError("the dtype of a result is unknown")


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _check_place(plan: Plan, step: int, place: Place) -> None:
    if not 0 <= place.memory < len(plan.memory):
        raise ValueError("a step uses memory that the plan does not have")
    if len(place.shape) != len(place.strides) or len(place.shape) > _MOST_DIMS:
        raise ValueError("a tensor has more sizes than strides, or less")
    memory = plan.memory[place.memory]
    if memory.kind == "temporary" and not memory.first <= step <= memory.last:
        raise ValueError("a step uses memory that is not its own")
    numbers = (*place.shape, *place.strides, place.offset, memory.size)
    if any(isinstance(n, str) for n in numbers):
        return
    shape = [n for n in place.shape if isinstance(n, int)]
    strides = [n for n in place.strides if isinstance(n, int)]
    if min(shape, default=0) < 0 or not isinstance(place.offset, int):
        raise ValueError("a tensor has a negative size")
    if 0 in shape or not isinstance(memory.size, int):
        return
    ends = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    least = place.offset + sum(e for e in ends if e < 0)
    most = place.offset + sum(e for e in ends if e > 0)
    if least < 0 or most >= memory.size:
        raise ValueError("a tensor is not inside its memory")


def _check_program(program: Program, step: ProgramStep) -> None:
    known = len(program.inputs)
    if known != len(step.inputs):
        raise ValueError("a program has other inputs than its step")
    if len(program.outputs) + len(program.reductions) != len(step.outputs):
        raise ValueError("a program has other results than its step")
    for instruction in program.instructions:
        if not all(type(o) is int and 0 <= o < known for o in instruction.operands):
            raise ValueError("an instruction uses a value that does not exist")
        known += 1
    values = (*program.outputs, *(value for _, value in program.reductions))
    if not all(type(v) is int and 0 <= v < known for v in values):
        raise ValueError("a result of a program does not exist")
    rank = len(step.space)
    if not 0 <= step.reduced <= rank:
        raise ValueError("a program reduces more dims than it has")
    stored = len(program.outputs)
    for k, place in enumerate((*step.inputs, *step.outputs)):
        reduces = k >= len(step.inputs) + stored
        if place.shape != step.space[: rank - step.reduced if reduces else rank]:
            raise ValueError("a tensor of a program has other sizes")
