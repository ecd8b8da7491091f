"""Tensors from nothing: constants and ranges."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common import promotion
from torch_max_backend.ops.common.positions import iota, is_zero
from torch_max_backend.ops.common.promotion import Operand, as_operand
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten
Sizes = list[int | Dim] | list[int] | list[Dim]


def _filled(value: Operand) -> TensorValue:
    """A tensor of what torch's metadata says, holding ``value`` everywhere."""
    spec = expected()
    return promotion.full(value, spec.dtype, spec.shape, spec.device)


@map_to(aten.full.default, native16=True)
def full(
    size: Sizes,
    fill_value: Operand,
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor"""
    return _filled(fill_value)


@map_to(aten.full_like.default, native16=True)
def full_like(
    self: TensorValue,
    fill_value: Operand,
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None) -> Tensor"""
    return _filled(fill_value)


@map_to(aten.scalar_tensor.default, native16=True)
def scalar_tensor(
    s: Operand, *, dtype: DType | None = None, device: DeviceRef | None = None
) -> TensorValue:
    """scalar_tensor(Scalar s, *, ScalarType? dtype=None, Device? device=None) -> Tensor"""
    return _filled(s)


@map_to(aten.fill.Scalar, aten.fill.Tensor, native16=True)
def fill(self: TensorValue, value: Operand) -> TensorValue:
    """fill.Scalar(Tensor self, Scalar value) -> Tensor"""
    return _filled(value)


# What torch leaves uninitialised is zero here.


@map_to(aten.empty.memory_format, native16=True)
def empty(
    size: Sizes, *, dtype: DType | None = None, device: DeviceRef | None = None
) -> TensorValue:
    """empty.memory_format(SymInt[] size, *, ScalarType? dtype=None) -> Tensor"""
    return _filled(0)


@map_to(aten.empty_strided.default, native16=True)
def empty_strided(
    size: Sizes,
    stride: Sizes,
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """empty_strided(SymInt[] size, SymInt[] stride, *, ScalarType? dtype=None) -> Tensor"""
    return _filled(0)


@map_to(aten.empty_permuted.default, native16=True)
def empty_permuted(
    size: Sizes,
    physical_layout: list[int],
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """empty_permuted(SymInt[] size, int[] physical_layout, *, ScalarType? dtype=None) -> Tensor"""
    return _filled(0)


@map_to(aten.new_empty_strided.default, native16=True)
def new_empty_strided(
    self: TensorValue,
    size: Sizes,
    stride: Sizes,
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """new_empty_strided(Tensor self, SymInt[] size, SymInt[] stride) -> Tensor"""
    return _filled(0)


@map_to(aten.arange.start_step)
def arange(
    start: Operand,
    end: Operand,
    step: Operand = 1,
    *,
    dtype: DType | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """arange.start_step(Scalar start, Scalar end, Scalar step=1) -> Tensor"""
    spec = expected()
    # torch computes start + i * step in double for floats, of truncated numbers for integers.
    wide = DType.float64 if spec.dtype.is_float() else DType.int64
    if is_zero(spec.shape[0]):
        return _filled(0)
    result = promotion.to_dtype(iota(spec.shape[0], spec.device), wide)
    if not _is(step, 1):
        result = ops.mul(result, as_operand(step, wide))
    if not _is(start, 0):
        result = ops.add(result, as_operand(start, wide))
    return promotion.to_dtype(result, spec.dtype)


def _is(value: Operand, number: int) -> bool:
    return not isinstance(value, TensorValue) and value == number
