"""What a mask picks: results whose size depends on data."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.data_sizes import (
    ON_CPU,
    first_true_at,
    on_cpu,
    taken_where,
    true_at,
)
from torch_max_backend.ops.common.positions import along, broadcast_shape, iota, product, spread
from torch_max_backend.ops.common.promotion import constant, full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


@map_to(aten.nonzero.default, kernels="base", supports=on_cpu, sizes_from_data=True)
def nonzero(self: TensorValue) -> TensorValue:
    """nonzero(Tensor self) -> Tensor"""
    size = expected().shape[0]
    if is_empty(self.shape):
        return full(0, DType.int64, expected().shape, self.device)
    if self.rank == 0:
        found = true_at(ops.reshape(self, [1]), size)
        return ops.slice_tensor(found, [slice(None), slice(0, 0)])
    return true_at(self, size)


@map_to(aten.nonzero_static.default, kernels="base", supports=on_cpu)
def nonzero_static(self: TensorValue, *, size: int | Dim, fill_value: int = -1) -> TensorValue:
    """nonzero_static(Tensor self, *, SymInt size, int fill_value=-1) -> Tensor"""
    shape = expected().shape
    if is_empty(shape) or self.rank == 0:
        return full(fill_value, DType.int64, shape, self.device)
    return first_true_at(self, shape[0], fill_value)


@map_to(
    aten.masked_select.default,
    kernels="base",
    supports=on_cpu,
    native16=True,
    sizes_from_data=True,
)
def masked_select(self: TensorValue, mask: TensorValue) -> TensorValue:
    """masked_select(Tensor self, Tensor mask) -> Tensor"""
    shape = broadcast_shape(self.shape, mask.shape)
    if is_empty(shape):
        return full(0, self.dtype, expected().shape, self.device)
    count = product(shape)
    flags = ops.reshape(spread(to_dtype(mask, DType.bool), shape), [count])
    values = ops.reshape(spread(self, shape), [1, count, 1])
    return ops.reshape(taken_where(values, flags, expected().shape[0]), expected().shape)


def _triangle(rows: int, columns: int, offset: int, lower: bool) -> TensorValue:
    """The indices ``[2, n]`` of the elements on and below (or above) a diagonal, by row."""
    spec = expected()
    if is_empty(spec.shape):
        return full(0, spec.dtype, spec.shape, spec.device)
    row = along(iota(rows, spec.device) + constant(offset, DType.int64, spec.device), 0, 2)
    column = along(iota(columns, spec.device), 1, 2)
    flags = ops.greater_equal(row, column) if lower else ops.greater_equal(column, row)
    places = first_true_at(flags, spec.shape[1], 0)
    return ops.cast(ops.permute(places, [1, 0]), spec.dtype)


def _indices_on_cpu(device: torch.device | None) -> Refusal | None:
    return None if device is None or device.type == "cpu" else Refusal(ON_CPU)


@map_to(aten.tril_indices.default, kernels="base", supports=_indices_on_cpu)
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | int | None, device: DeviceRef | None
) -> TensorValue:
    """tril_indices(int row, int col, int offset=0, *, ScalarType? dtype=long,
    Device? device=None) -> Tensor"""
    return _triangle(row, col, offset, lower=True)


@map_to(aten.triu_indices.default, kernels="base", supports=_indices_on_cpu)
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DType | int | None, device: DeviceRef | None
) -> TensorValue:
    """triu_indices(int row, int col, int offset=0, *, ScalarType? dtype=long,
    Device? device=None) -> Tensor"""
    return _triangle(row, col, offset, lower=False)
