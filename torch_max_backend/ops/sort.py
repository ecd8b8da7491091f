"""Sorting, selection and order statistics, by kernels of ``mojo_kernels/sorting/sort.mojo``.

MAX's own top_k orders NaN differently from torch and is many times slower.
"""

from __future__ import annotations

from typing import Any

import torch
from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.max_dtypes import torch_dtype
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.positions import product, scalar
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

# Up to this many, selection keeps a sorted list and needs no memory of its own.
_FEW = 64


def sorted_lines(x: TensorValue, dim: int, descending: bool) -> tuple[TensorValue, TensorValue]:
    """Values in order along a dimension, and where they stood; stable, NaN is the greatest."""
    if x.rank == 0 or is_empty(x.shape):
        return x, full(0, DType.int64, x.shape, x.device)
    dtype = x.dtype
    rows = _rows(to_dtype(x, DType.uint8) if dtype == DType.bool else x, dim)
    positions = TensorType(DType.int64, rows.shape, rows.device)
    values, indices, *_ = ops.custom(
        "tmb_sort",
        rows.device,
        [rows],
        [rows.type, positions, rows.type, positions],
        {"descending": descending},
    )
    return to_dtype(_back(values.tensor, x, dim), dtype), _back(indices.tensor, x, dim)


def _rows(x: TensorValue, dim: int) -> TensorValue:
    """``[lines, n]``: the lines along a dimension."""
    turned = ops.transpose(x, dim, -1) if axis(dim, x.rank) != x.rank - 1 else x
    return ops.reshape(turned, [product(turned.shape[:-1]), turned.shape[-1]])


def _back(rows: TensorValue, x: TensorValue, dim: int) -> TensorValue:
    """``[lines, k]`` of ``_rows(x, dim)``, of the shape of ``x`` but along the dimension."""
    shape, at = [*x.shape], axis(dim, x.rank)
    if at == x.rank - 1:
        return ops.reshape(rows, [*shape[:-1], rows.shape[-1]])
    shape[at], shape[-1] = shape[-1], rows.shape[-1]
    return ops.transpose(ops.reshape(rows, shape), at, -1)


@map_to(aten.sort.default, kernels="sorting.sort")
def sort(self: TensorValue, dim: int, descending: bool) -> tuple[TensorValue, TensorValue]:
    """sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)"""
    return sorted_lines(self, dim, descending)


@map_to(aten.sort.stable, kernels="sorting.sort")
def sort_stable(
    self: TensorValue, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[TensorValue, TensorValue]:
    """sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False)
    -> (Tensor values, Tensor indices)"""
    return sorted_lines(self, dim, descending)


@map_to(aten.topk.default, kernels="sorting.sort")
def topk(
    self: TensorValue, k: int | Dim, dim: int, largest: bool, sorted: bool
) -> tuple[TensorValue, TensorValue]:
    """topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True)
    -> (Tensor values, Tensor indices)"""
    shape = expected(0).shape
    if self.rank == 0 or is_empty(shape):
        whole = self.rank == 0 and not is_empty(shape)
        values = ops.reshape(self, shape) if whole else full(0, self.dtype, shape, self.device)
        return values, full(0, DType.int64, shape, self.device)
    many = not isinstance(k, int) or k > _FEW
    if many and not self.device.is_cpu():
        at = axis(dim, self.rank)
        values, indices = sorted_lines(self, dim, largest)
        cut: list[Any] = [slice(None)] * self.rank
        cut[at] = (slice(0, k), Dim(k))
        return ops.slice_tensor(values, cut), ops.slice_tensor(indices, cut)
    rows = _rows(self, dim)
    few = [rows.shape[0], k]
    values, indices = ops.custom(
        "tmb_select" if many else "tmb_topk",
        rows.device,
        [rows],
        [TensorType(rows.dtype, few, rows.device), TensorType(DType.int64, few, rows.device)],
        {"descending": largest},
    )
    return _back(values.tensor, self, dim), _back(indices.tensor, self, dim)


def _statistic(
    x: TensorValue, dim: int, kind: str, k: int | Dim = 1
) -> tuple[TensorValue, TensorValue]:
    """The value of a rank along a dimension and where it stands, of the node's expected shape."""
    shape = expected(0).shape
    if is_empty(shape):
        return full(0, x.dtype, shape, x.device), full(0, DType.int64, shape, x.device)
    if x.rank == 0:
        return ops.reshape(x, shape), full(0, DType.int64, shape, x.device)
    at = axis(dim, x.rank)
    wide = to_dtype(x, DType.uint8) if x.dtype == DType.bool else x
    lines = ops.reshape(wide, [product(x.shape[:at]), x.shape[at], product(x.shape[at + 1 :])])
    small = [lines.shape[0], 1, lines.shape[2]]
    values, indices = ops.custom(
        "tmb_order_statistic",
        x.device,
        [lines, scalar(Dim(k) - 1)],
        [TensorType(d, small, x.device) for d in (lines.dtype, DType.int64)],
        {"kind": kind},
    )
    return (
        ops.reshape(to_dtype(values.tensor, x.dtype), shape),
        ops.reshape(indices.tensor, shape),
    )


@map_to(aten.kthvalue.default, kernels="sorting.sort")
def kthvalue(
    self: TensorValue, k: int | Dim, dim: int, keepdim: bool
) -> tuple[TensorValue, TensorValue]:
    """kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False)
    -> (Tensor values, Tensor indices)"""
    return _statistic(self, dim, "kth", k)


@map_to(aten.median.dim, kernels="sorting.sort")
def median_dim(self: TensorValue, dim: int, keepdim: bool) -> tuple[TensorValue, TensorValue]:
    """median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    return _statistic(self, dim, "median")


@map_to(aten.nanmedian.dim, kernels="sorting.sort")
def nanmedian_dim(self: TensorValue, dim: int, keepdim: bool) -> tuple[TensorValue, TensorValue]:
    """nanmedian.dim(Tensor self, int dim, bool keepdim=False)
    -> (Tensor values, Tensor indices)"""
    return _statistic(self, dim, "nanmedian")


@map_to(aten.median.default, kernels="sorting.sort")
def median(self: TensorValue) -> TensorValue:
    """median(Tensor self) -> Tensor"""
    return _of_all(self, "median")


@map_to(aten.nanmedian.default, kernels="sorting.sort")
def nanmedian(self: TensorValue) -> TensorValue:
    """nanmedian(Tensor self) -> Tensor"""
    return _of_all(self, "nanmedian")


def _of_all(x: TensorValue, kind: str) -> TensorValue:
    if is_empty(x.shape):
        # torch: NaN, and the least integer.
        return full(_nothing(x.dtype), x.dtype, [], x.device)
    if x.rank == 0:
        return x
    return _statistic(ops.reshape(x, [product(x.shape)]), 0, kind)[0]


def _nothing(dtype: DType) -> float | int:
    if dtype.is_float():
        return float("nan")
    return torch.tensor([], dtype=torch_dtype(dtype)).median().item()


@map_to(aten.mode.default, kernels="sorting.sort")
def mode(self: TensorValue, dim: int, keepdim: bool) -> tuple[TensorValue, TensorValue]:
    """mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)

    The least of the most frequent values, and the last place where it stands.
    """
    shape = expected(0).shape
    if is_empty(shape):
        return full(0, self.dtype, shape, self.device), full(0, DType.int64, shape, self.device)
    if self.rank == 0:
        return ops.reshape(self, shape), full(0, DType.int64, shape, self.device)
    at = axis(dim, self.rank)
    values, indices = sorted_lines(
        to_dtype(self, DType.uint8) if self.dtype == DType.bool else self, at, descending=False
    )
    rows = [_rows(v, at) for v in (values, indices)]
    small = [rows[0].shape[0], 1]
    value, index = ops.custom(
        "tmb_mode", self.device, rows, [TensorType(v.dtype, small, self.device) for v in rows]
    )
    return (
        ops.reshape(to_dtype(_back(value.tensor, self, at), self.dtype), shape),
        ops.reshape(_back(index.tensor, self, at), shape),
    )
