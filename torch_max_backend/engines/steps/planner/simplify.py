"""Element-wise operations that change nothing: their result is one of their operands."""

from __future__ import annotations

from collections.abc import Callable

import torch

from torch_max_backend.engines.steps.planner.graph import Node, Value

# Instructions that give NaN for NaN: what guards MAX's operations from losing it is not needed.
_KEEP_NAN = frozenset(
    {"Tanh", "Exp", "Log", "Log1p", "Sqrt", "Rsqrt", "Sin", "Cos", "Erf", "Sigmoid", "Silu", "Gelu"}
)


def unchanged(node: Node, constant: Callable[[Value], torch.Tensor | None]) -> Value | None:
    """The operand that the result equals, bit by bit, if there is one of its shape and dtype.

    Args:
        node: An element-wise operation.
        constant: The tensor behind a value that is constant.
    """
    found = _unchanged(node, constant)
    result = node.results[0]
    if found is None or found.dtype != result.dtype or found.shape != result.shape:
        return None
    return found


def _unchanged(node: Node, constant: Callable[[Value], torch.Tensor | None]) -> Value | None:
    if node.op == "Select":
        return _guarded(node)
    if node.op == "Cast":
        return node.operands[0]  # if the dtypes are equal
    if node.op not in ("Add", "Sub", "Mul", "Div"):
        return None
    a, b = node.operands
    is_float = "float" in node.results[0].dtype
    neutral = 0 if node.op in ("Add", "Sub") else 1
    if node.op == "Add" and is_float:
        return None  # -0 + 0 is 0
    if _is(constant(b), neutral):
        return a
    if node.op in ("Add", "Mul") and _is(constant(a), neutral):
        return b
    return None


def _is(tensor: torch.Tensor | None, number: int) -> bool:
    if tensor is None or tensor.numel() != 1:
        return False
    value = tensor.item()
    # -0 is another number.
    return value == number and not (value == 0 and str(value).startswith("-"))


def _guarded(node: Node) -> Value | None:
    """``f(x)`` of ``x if isnan(x) else f(x)``."""
    condition, kept, other = node.operands
    asked, made = condition.node, other.node
    if asked is None or made is None or asked.op != "IsNan" or made.op not in _KEEP_NAN:
        return None
    same = asked.operands[0] is kept and made.operands[0] is kept
    return other if same else None
