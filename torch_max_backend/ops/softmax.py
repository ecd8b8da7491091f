"""Softmax and its logarithm."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.positions import as_lines
from torch_max_backend.ops.common.promotion import constant, full, to_dtype, working_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


@map_to(aten._softmax.default, kernels="base", native16=True)
def softmax(self: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    """_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"""
    return _along(to_dtype(self, expected().dtype), dim, softmax_rows)


@map_to(aten._log_softmax.default, kernels="base", native16=True)
def log_softmax(self: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    """_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor"""
    return _along(to_dtype(self, expected().dtype), dim, log_softmax_rows)


@map_to(aten._masked_softmax.default, kernels="base")
def masked_softmax(
    self: TensorValue, mask: TensorValue, dim: int | None = None, mask_type: int | None = None
) -> TensorValue:
    """_masked_softmax(Tensor self, Tensor mask, int? dim=None, int? mask_type=None) -> Tensor

    What is true in ``mask`` has no part in the sums, and becomes 0. It is ``[length, length]``
    (type 0), ``[batch, length]`` of keys (1), or has the shape of ``self`` ``[batch, heads,
    length, length]`` (2).
    """

    def softmax_of(x: TensorValue, dim: int) -> TensorValue:
        seen = ops.reshape(mask, [mask.shape[0], 1, 1, mask.shape[1]]) if mask_type == 1 else mask
        hidden = ops.broadcast_to(seen, x.shape)
        return softmax_rows(ops.where(hidden, constant(-math.inf, x.dtype, x.device), x), dim)

    x = to_dtype(self, working_dtype())
    return _along(x, self.rank - 1 if dim is None else dim, softmax_of)


def softmax_rows(x: TensorValue, dim: int, *, blind: bool = False) -> TensorValue:
    """Softmax along one dimension.

    A row with NaN or +inf is all NaN, as in torch; MAX's own is zero beside them.

    Args:
        x: Floating-point values.
        dim: The dimension.
        blind: Whether a row of -inf gives zeros (as in attention) instead of NaN.
    """
    if x.device.is_cpu():
        return _by_kernel(x, dim, logarithm=False, blind=blind)
    zero, one, infinity, nan = (constant(v, x.dtype, x.device) for v in (0, 1, math.inf, math.nan))
    # One sum tells both: NaN if the row is spoiled, 0 if it is all -inf.
    seen = ops.where(ops.greater(infinity, x), one, nan)
    if blind:
        seen = ops.where(ops.equal(x, -infinity), zero, seen)
    marks = ops.sum(seen, dim)
    result = ops.softmax(x, dim)
    # Not by arithmetic: MAX folds marks * 0 to 0, NaN or not.
    result = ops.where(ops.broadcast_to(ops.is_nan(marks), result.shape), nan, result)
    if blind:
        nothing = ops.broadcast_to(ops.equal(marks, zero), result.shape)
        result = ops.where(nothing, zero, result)
    return result


def log_softmax_rows(x: TensorValue, dim: int) -> TensorValue:
    """The logarithm of softmax along one dimension, NaN where torch's is."""
    if x.device.is_cpu():
        return _by_kernel(x, dim, logarithm=True)
    shifted = x - ops.max(x, axis=dim)
    # MAX's exp(NaN) is inf, which would give -inf instead of NaN.
    powers = ops.where(ops.is_nan(shifted), shifted, ops.exp(shifted))
    return shifted - ops.log(ops.sum(powers, dim))


def _by_kernel(x: TensorValue, dim: int, *, logarithm: bool, blind: bool = False) -> TensorValue:
    lines = as_lines(x, axis(dim, x.rank))
    settings = {"logarithm": logarithm, "blind": blind}
    result = ops.custom("tmb_softmax", x.device, [lines], [lines.type], settings)
    return ops.reshape(result[0].tensor, x.shape)


def _along(
    x: TensorValue, dim: int, rows: Callable[[TensorValue, int], TensorValue]
) -> TensorValue:
    spec = expected()
    if is_empty(x.shape):
        return full(0, x.dtype, spec.shape, x.device)
    if x.rank == 0:
        return ops.reshape(rows(ops.reshape(x, [1]), 0), [])
    return rows(x, axis(dim, x.rank))
