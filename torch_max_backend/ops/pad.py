"""Padding."""

from __future__ import annotations

from typing import Any, Literal

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorValue, ops

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.positions import (
    Size,
    along,
    iota,
    is_zero,
    on_device,
    static,
    window,
)
from torch_max_backend.ops.common.promotion import Number, as_operand, constant, full
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


@map_to(aten.constant_pad_nd.default, native16=True)
def constant_pad_nd(
    self: TensorValue, pad: list[int | Dim], value: Number | TensorValue = 0
) -> TensorValue:
    """constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor"""
    spec = expected()
    # torch lists the last dim first; a negative amount cuts.
    amounts: list[Size] = [0] * (2 * self.rank)
    result = self
    for i in range(len(pad) // 2):
        dim = self.rank - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        cut_left = min(static(before) or 0, 0)
        cut_right = min(static(after) or 0, 0)
        if cut_left or cut_right:
            left_over = result.shape[dim] + cut_left + cut_right
            known = static(left_over)
            # Amounts that cut more than there is leave the rest to the other side's padding.
            result = window(result, dim, -cut_left, left_over if known is None else max(known, 0))
        amounts[2 * dim] = before if static(before) is None else max(static(before) or 0, 0)
        amounts[2 * dim + 1] = after if static(after) is None else max(static(after) or 0, 0)
    if any(is_zero(s) for s in [*result.shape, *spec.shape]):
        return full(value, spec.dtype, spec.shape, spec.device)
    if all(is_zero(a) for a in amounts):
        return result
    if all(static(a) is not None for a in amounts):
        fill = as_operand(value, self.dtype, DeviceRef.CPU())
        return ops.pad(result, [int(a) for a in amounts], value=fill)
    for dim in range(self.rank):
        before, after = amounts[2 * dim], amounts[2 * dim + 1]
        if not (is_zero(before) and is_zero(after)):
            result = _moved(result, dim, before, after, value)
    return result


def _moved(
    x: TensorValue, dim: int, before: Size, after: Size, fill: Number | TensorValue
) -> TensorValue:
    """Padding by symbolic amounts, of which torch promises no sign: negative ones cut."""
    have = x.shape[dim]
    at = iota(have + before + after, x.device) - on_device(before, x.device)
    zero = constant(0, DType.int64, x.device)
    inside = ops.logical_and(
        ops.greater_equal(at, zero), ops.greater(on_device(have, x.device), at)
    )
    picked = ops.gather(x, ops.where(inside, at, zero), dim)
    return ops.where(along(inside, dim, x.rank), picked, as_operand(fill, x.dtype, x.device))


_MODES: dict[Any, Literal["reflect", "edge"]] = {
    aten.reflection_pad1d.default: "reflect",
    aten.reflection_pad2d.default: "reflect",
    aten.reflection_pad3d.default: "reflect",
    aten.replication_pad1d.default: "edge",
    aten.replication_pad2d.default: "edge",
    aten.replication_pad3d.default: "edge",
}


def _static_padding(padding: list[int]) -> Refusal | None:
    if any(not isinstance(p, int) for p in padding):
        return Refusal("the amounts of this padding must not be symbolic")
    return None


def _register(op: OpOverload, mode: Literal["reflect", "edge"]) -> None:
    @map_to(op, supports=_static_padding, native16=True)
    def lowering(self: TensorValue, padding: list[int]) -> TensorValue:
        amounts = [0] * (2 * self.rank)
        cuts: list[tuple[int, int, int]] = []
        for i in range(len(padding) // 2):
            dim = self.rank - 1 - i
            before, after = padding[2 * i], padding[2 * i + 1]
            amounts[2 * dim], amounts[2 * dim + 1] = max(before, 0), max(after, 0)
            cuts.append((dim, max(-before, 0), max(-after, 0)))
        result = ops.pad(self, amounts, mode=mode)
        for dim, left, right in cuts:
            result = window(result, dim, left, result.shape[dim] - left - right)
        return result


for _op, _mode in _MODES.items():
    _register(_op, _mode)
