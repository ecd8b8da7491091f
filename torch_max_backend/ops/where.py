"""Choosing between values, and keeping values within bounds."""

from __future__ import annotations

import math

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.max_dtypes import torch_dtype
from torch_max_backend.ops.common import numerics
from torch_max_backend.ops.common.promotion import (
    Operand,
    broadcast,
    constant,
    operands,
    opmath,
)
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


@map_to(aten.where.self, native16=True)
def where(condition: TensorValue, self: TensorValue, other: TensorValue) -> TensorValue:
    """where.self(Tensor condition, Tensor self, Tensor other) -> Tensor"""
    (chosen,) = operands(DType.bool, condition)
    a, b = operands(expected().dtype, self, other)
    return ops.where(chosen, a, b)


@map_to(aten.masked_fill.Scalar, aten.masked_fill.Tensor, native16=True)
def masked_fill(self: TensorValue, mask: TensorValue, value: Operand) -> TensorValue:
    """masked_fill.Scalar(Tensor self, Tensor mask, Scalar value) -> Tensor"""
    (chosen,) = operands(DType.bool, mask)
    kept, filling = operands(expected().dtype, self, value)
    return ops.where(chosen, filling, kept)


@map_to(aten.clamp.default)
def clamp(self: TensorValue, min: Operand | None = None, max: Operand | None = None) -> TensorValue:
    """clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor"""
    dtype = opmath(expected().dtype)
    (x,) = operands(dtype, self)
    for bound in (min, max):
        if isinstance(bound, float) and math.isnan(bound):
            return broadcast(constant(math.nan, dtype, x.device), x.shape)
    low = None if min is None else operands(dtype, _within(min, dtype))[0]
    high = None if max is None else operands(dtype, _within(max, dtype))[0]
    return numerics.clamp(x, low, high)


def _within(bound: Operand, dtype: DType) -> Operand:
    """A bound that integers of ``dtype`` can hold: it must not wrap around."""
    if dtype.is_float() or dtype == DType.bool or isinstance(bound, TensorValue):
        return bound
    limits = torch.iinfo(torch_dtype(dtype))
    return min(max(bound, limits.min), limits.max)


@map_to(aten.clamp.Tensor)
def clamp_tensor(
    self: TensorValue, min: TensorValue | None = None, max: TensorValue | None = None
) -> TensorValue:
    """clamp.Tensor(Tensor self, Tensor? min=None, Tensor? max=None) -> Tensor"""
    dtype = opmath(expected().dtype)
    (x,) = operands(dtype, self)
    if min is not None:
        x = numerics.maximum(x, operands(dtype, min)[0])
    if max is not None:
        x = numerics.minimum(x, operands(dtype, max)[0])
    return x
