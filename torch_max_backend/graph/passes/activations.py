"""Activations that are written out as arithmetic, such as GELU in many models."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Node

aten = torch.ops.aten


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _clamp(x: float, low: float | None = None, high: float | None = None) -> float:
    x = x if low is None else max(x, low)
    return x if high is None else min(x, high)


# What the operators of such arithmetic do to numbers.
_SCALAR: Mapping[Any, Callable[..., float]] = {
    aten.add.Tensor: operator.add,
    aten.sub.Tensor: operator.sub,
    aten.mul.Tensor: operator.mul,
    aten.div.Tensor: operator.truediv,
    aten.pow.Tensor_Scalar: operator.pow,
    aten.neg.default: operator.neg,
    aten.erf.default: math.erf,
    aten.tanh.default: math.tanh,
    aten.sigmoid.default: _sigmoid,
    aten.exp.default: math.exp,
    aten.reciprocal.default: lambda x: 1 / x,
    aten.clamp.default: _clamp,
}


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


_ACTIVATIONS: Mapping[str, Callable[[float], float]] = {
    "relu6": lambda x: _clamp(x, 0, 6),
    "hardsigmoid": lambda x: _clamp(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * _clamp(x + 3, 0, 6) / 6,
    "gelu": lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))),
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x: x * _sigmoid(x),
}
# Numbers at which two functions that agree are taken for the same: of both signs, around the bends.
_SAMPLES = (-6.3, -3.1, -1.7, -0.9, -0.31, -0.02, 0.0, 0.013, 0.24, 0.77, 1.3, 2.2, 3.7, 5.9, 6.8)
# Constants may be written with the digits of float32.
_NEAR = 1e-7
# Operators of the longest form.
_LONGEST = 12


def written_out(x: Node) -> tuple[Node, str] | None:
    """What the nodes after one compute of it, where that is an activation and nothing else uses
    what is between.

    Args:
        x: A node that makes a float32 tensor.

    Returns:
        The node that makes the activation, and its name as the kernels know it, or ``None``.
    """
    values: dict[Node, tuple[float, ...]] = {x: _SAMPLES}
    while len(values) <= _LONGEST:
        # An operator of two operands waits until both are known.
        users = dict.fromkeys(u for v in values for u in v.users if u not in values)
        known = ((u, _value(u, values, x)) for u in users)
        node, found = next(((u, v) for u, v in known if v is not None), (None, None))
        if node is None or found is None:
            return None
        values[node] = found
        if all(u in values for v in values if v is not node for u in v.users):
            name = _name(found)
            if name is not None:
                return node, name
    return None


def _value(
    node: Node, values: Mapping[Node, tuple[float, ...]], x: Node
) -> tuple[float, ...] | None:
    """What a node makes of the samples, if it computes with numbers and known nodes alone."""
    function = _SCALAR.get(node.target)
    like, value = x.meta["val"], node.meta.get("val")
    if function is None or node.kwargs or not isinstance(value, torch.Tensor):
        return None
    if value.dtype != like.dtype or value.dim() != like.dim():
        return None
    operands: list[tuple[Any, ...]] = []
    for argument in node.args:
        if isinstance(argument, Node):
            if argument not in values:
                return None
            operands.append(values[argument])
        elif argument is None or isinstance(argument, (int, float)):
            operands.append((argument,) * len(_SAMPLES))
        else:
            return None
    try:
        found = tuple(function(*numbers) for numbers in zip(*operands, strict=True))
    except (ArithmeticError, ValueError, TypeError):
        return None
    # Python takes odd roots of negative numbers for complex ones.
    return found if all(isinstance(v, (int, float)) for v in found) else None


def _name(found: tuple[float, ...]) -> str | None:
    for name, function in _ACTIVATIONS.items():
        right = map(function, _SAMPLES)
        if all(abs(a - b) <= _NEAR * max(1, abs(b)) for a, b in zip(found, right, strict=True)):
            return name
    return None
