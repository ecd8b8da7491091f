"""A plan as bytes and back: JSON, never code."""

from __future__ import annotations

import base64
import json
from typing import Any

import torch

from torch_max_backend.engines.steps.planner.plan import (
    JumpStep,
    KernelStep,
    Memory,
    Place,
    Plan,
    ProgramStep,
    SizeText,
    Step,
    Then,
)
from torch_max_backend.engines.steps.programs import Instruction, Program
from torch_max_backend.engines.steps.validate import validate
from torch_max_backend.errors import CompilationError
from torch_max_backend.graph.expressions import checked

# How an artifact that holds a plan begins.
MAGIC = b"torch_max_backend plan 4\n"


def serialized(plan: Plan) -> bytes:
    """The artifact of a plan."""
    return MAGIC + json.dumps(_content(plan), separators=(",", ":")).encode()


def _content(plan: Plan) -> dict[str, Any]:
    then = plan.then
    return {
        "steps": [_step(s) for s in plan.steps],
        "memory": [[m.kind, m.dtype, m.size, m.index, m.first, m.last] for m in plan.memory],
        "constants": [_tensor(c) for c in plan.constants],
        "sizes": [[k, list(v)] for k, v in plan.sizes.items()],
        "ranges": [[k, list(v)] for k, v in plan.ranges.items()],
        "outputs": [[dtype, list(shape)] for dtype, shape in plan.outputs],
        "checks": [list(c) for c in plan.checks],
        "symbols": {name: list(source) for name, source in plan.symbols.items()},
        "then": then and [_content(then.plan), list(then.names), [list(r) for r in then.results]],
    }


def deserialized(artifact: bytes) -> Plan:
    """The plan of an artifact.

    Raises:
        CompilationError: It is damaged, or holds what is no plan.
    """
    try:
        plan = _plan(json.loads(artifact[len(MAGIC) :]))
        validate(plan)
        return plan
    # RuntimeError: what torch says of a constant's sizes.
    except (
        ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError, RecursionError
    ) as e:  # fmt: skip
        raise CompilationError(f"A plan of steps cannot be read: {e}") from e


def _plan(content: dict[str, Any]) -> Plan:
    names = frozenset(content["symbols"])
    return Plan(
        [_read_step(s, names) for s in content["steps"]],
        [
            Memory(kind, dtype, _size(size, names), int(index), int(first), int(last))
            for kind, dtype, size, index, first, last in content["memory"]
        ],
        [_read_tensor(c) for c in content["constants"]],
        {int(k): _sizes(v, names) for k, v in content["sizes"]},
        {int(k): _pair(v, names) for k, v in content["ranges"]},
        [(dtype, _sizes(shape, names)) for dtype, shape in content["outputs"]],
        [_pair(c, names) for c in content["checks"]],
        {name: (int(i), int(axis)) for name, (i, axis) in content["symbols"].items()},
        None if content["then"] is None else _read_then(*content["then"]),
    )


def _read_then(content: dict[str, Any], names: list[str], results: list[Any]) -> Then:
    made = tuple((bool(before), int(k)) for before, k in results)
    return Then(_plan(content), tuple(map(str, names)), made)


def _step(step: Step) -> list[Any]:
    outputs, inputs = ([_place(p) for p in places] for places in (step.outputs, step.inputs))
    if isinstance(step, KernelStep):
        parameters = dict(step.parameters)
        return ["kernel", step.symbol, parameters, outputs, inputs, step.origin, step.owner]
    if isinstance(step, JumpStep):
        return ["jump", step.target, inputs, step.origin]
    program = step.program
    return [
        "program",
        [
            list(program.inputs),
            [[i.name, i.dtype, list(i.operands), i.constant] for i in program.instructions],
            list(program.outputs),
            [list(r) for r in program.reductions],
        ],
        list(step.space),
        step.reduced,
        outputs,
        inputs,
        step.origin,
    ]


def _read_step(data: list[Any], names: frozenset[str]) -> Step:
    kind, *rest = data
    if kind == "kernel":
        symbol, parameters, outputs, inputs, origin, owner = rest
        return KernelStep(
            str(symbol),
            dict(parameters),
            tuple(_read_place(p, names) for p in outputs),
            tuple(_read_place(p, names) for p in inputs),
            str(origin),
            str(owner),
        )
    if kind == "jump":
        target, inputs, origin = rest
        return JumpStep(int(target), tuple(_read_place(p, names) for p in inputs), str(origin))
    (given, instructions, results, reductions), space, reduced, outputs, inputs, origin = rest
    program = Program(
        tuple(given),
        tuple(
            Instruction(name, dtype, tuple(operands), constant)
            for name, dtype, operands, constant in instructions
        ),
        tuple(results),
        tuple((kind, value) for kind, value in reductions),
    )
    return ProgramStep(
        program,
        _sizes(space, names),
        int(reduced),
        tuple(_read_place(p, names) for p in inputs),
        tuple(_read_place(p, names) for p in outputs),
        str(origin),
    )


def _place(place: Place) -> list[Any]:
    return [place.memory, list(place.shape), list(place.strides), place.offset]


def _read_place(data: list[Any], names: frozenset[str]) -> Place:
    memory, shape, strides, offset = data
    return Place(int(memory), _sizes(shape, names), _sizes(strides, names), _size(offset, names))


def _size(value: Any, names: frozenset[str]) -> SizeText:
    return value if type(value) is int else checked(value, names)


def _sizes(values: list[Any], names: frozenset[str]) -> tuple[SizeText, ...]:
    return tuple(_size(v, names) for v in values)


def _pair(values: list[Any], names: frozenset[str]) -> tuple[SizeText, SizeText]:
    a, b = values
    return _size(a, names), _size(b, names)


def _tensor(tensor: torch.Tensor) -> list[Any]:
    # A copy: the strides of an expanded tensor do not let it be seen as bytes.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype, device="cpu").copy_(tensor.reshape(-1))
    data = flat.view(torch.uint8).numpy().tobytes()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return [dtype, list(tensor.shape), base64.b64encode(data).decode()]


def _read_tensor(data: list[Any]) -> torch.Tensor:
    dtype, shape, text = data
    raw = bytearray(base64.b64decode(text))
    kind = getattr(torch, dtype)
    if not raw:
        return torch.empty(shape, dtype=kind, device="cpu")
    return torch.frombuffer(raw, dtype=kind).clone().reshape(shape)
