"""Operators on lists of tensors, as operators on each.

Optimizers and the clipping of gradients call them. In a compiled graph nothing is gained by
keeping the lists together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_max_backend.compat.operators import OpOverload, operator_names

_PREFIX = "aten::_foreach_"


def decompositions() -> dict[OpOverload, Callable[..., Any]]:
    """Of every operator whose name says what is done to each tensor."""
    found: dict[OpOverload, Callable[..., Any]] = {}
    for name in operator_names():
        packet, _, overload = name.partition(".")
        each = packet.removeprefix(_PREFIX)
        if each == packet or each.endswith("_") or overload.endswith("out"):
            continue
        function = _OWN.get(each) or getattr(torch, each, None)
        if function is not None:
            op = getattr(torch.ops.aten, packet.removeprefix("aten::"))
            found[getattr(op, overload or "default")] = _each(function)
    return found


def _each(function: Callable[..., Tensor]) -> Callable[..., list[Tensor]]:
    def listed(*args: Any, **kwargs: Any) -> list[Tensor]:
        count = next(len(a) for a in args if isinstance(a, (list, tuple)))
        columns = [_column(a, count) for a in args]
        return [function(*row, **kwargs) for row in zip(*columns, strict=True)]

    return listed


def _column(argument: Any, count: int) -> Any:
    if isinstance(argument, (list, tuple)):
        return argument
    if isinstance(argument, Tensor) and argument.dim() == 1:  # a list of scalars
        return argument.unbind()
    return [argument] * count


def _addcmul(x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    return x + value * (a * b) if isinstance(value, Tensor) else torch.addcmul(x, a, b, value=value)


def _addcdiv(x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
    return x + value * (a / b) if isinstance(value, Tensor) else torch.addcdiv(x, a, b, value=value)


def _copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.dtype).expand_as(x).clone()


def _maximum(x: Tensor, other: Any) -> Tensor:
    return torch.maximum(x, other) if isinstance(other, Tensor) else x.clamp_min(other)


def _minimum(x: Tensor, other: Any) -> Tensor:
    return torch.minimum(x, other) if isinstance(other, Tensor) else x.clamp_max(other)


def _norm(x: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


def _powsum(x: Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> Tensor:
    return x.abs().pow(ord).sum(dtype=dtype)


_OWN: dict[str, Callable[..., Tensor]] = {
    "addcdiv": _addcdiv,
    "addcmul": _addcmul,
    "copy": _copy,
    "maximum": _maximum,
    "minimum": _minimum,
    "norm": _norm,
    "powsum": _powsum,
    "zero": torch.zeros_like,
}
