"""Element-wise operations on constants, computed while a plan is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from torch_max_backend.engines.steps.planner.graph import Node

# The same for constants, where torch's function is exactly what the instruction is.
_TORCH: dict[str, Callable[..., torch.Tensor]] = {
    "Add": torch.add,
    "Sub": torch.sub,
    "Mul": torch.mul,
    "Equal": torch.eq,
    "NotEqual": torch.ne,
    "Greater": torch.gt,
    "GreaterEqual": torch.ge,
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "Not": torch.logical_not,
    "Select": torch.where,
    "Negative": torch.neg,
    "Abs": torch.abs,
    "IsNan": torch.isnan,
    "IsInf": torch.isinf,
    "Sqrt": torch.sqrt,
    "Floor": torch.floor,
    "Ceil": torch.ceil,
    "Trunc": torch.trunc,
    "Round": torch.round,
}
_BOOL_ONLY = frozenset({"And", "Or", "Xor", "Not"})


def evaluate(node: Node, tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The result for constant operands, or ``None`` where torch's would not be bit-equal."""
    dtype = getattr(torch, node.results[0].dtype)
    if node.op == "Cast":
        (x,) = tensors
        return x.to(dtype)
    function = _TORCH.get(node.op)
    if node.op == "Div" and dtype.is_floating_point:
        function = torch.div
    if function is None:
        return None
    if node.op in _BOOL_ONLY and any(t.dtype != torch.bool for t in tensors):
        return None
    result = function(*tensors)
    return result if result.dtype == dtype else None
