"""Sorting, selection and order statistics, by kernels of ``mojo_kernels/sorting.mojo``.

MAX's own top_k orders NaN differently from torch and is many times slower.
"""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.convert.registry import map_to
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import greatest_at, is_empty

aten = torch.ops.aten

# Up to this many, selection keeps a sorted list; beyond, sorting all is never much worse.
_FEW = 64


def _sorted(x: TensorValue, dim: int, descending: bool) -> tuple[TensorValue, TensorValue]:
    """Values in order along a dimension, and where they stood; stable, NaN is the greatest."""
    if x.rank == 0 or is_empty(x.shape):
        return x, full(0, DType.int64, x.shape, x.device)
    dtype = x.dtype
    rows, at = _last(to_dtype(x, DType.uint8) if dtype == DType.bool else x, dim)
    positions = TensorType(DType.int64, rows.shape, rows.device)
    values, indices, *_ = ops.custom(
        "tmb_sort",
        rows.device,
        [rows],
        [rows.type, positions, rows.type, positions],
        {"descending": descending},
    )
    return to_dtype(_back(values.tensor, at), dtype), _back(indices.tensor, at)


def _last(x: TensorValue, dim: int) -> tuple[TensorValue, int]:
    at = axis(dim, x.rank)
    return (x if at == x.rank - 1 else ops.transpose(x, at, -1)), at


def _back(rows: TensorValue, at: int) -> TensorValue:
    return rows if at == rows.rank - 1 else ops.transpose(rows, at, -1)


@map_to(aten.sort.default, kernels="base")
def sort(self: TensorValue, dim: int, descending: bool) -> tuple[TensorValue, TensorValue]:
    """sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)"""
    return _sorted(self, dim, descending)


@map_to(aten.sort.stable, kernels="base")
def sort_stable(
    self: TensorValue, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> tuple[TensorValue, TensorValue]:
    """sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False)
    -> (Tensor values, Tensor indices)"""
    return _sorted(self, dim, descending)


@map_to(aten.topk.default, kernels="base")
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
    if not isinstance(k, int) or k > _FEW:
        at = axis(dim, self.rank)
        values, indices = _sorted(self, dim, largest)
        cut = [slice(None)] * self.rank
        cut[at] = (slice(0, k), Dim(k))
        return ops.slice_tensor(values, cut), ops.slice_tensor(indices, cut)
    rows, at = _last(self, dim)
    few = [*rows.shape[:-1], k]
    values, indices = ops.custom(
        "tmb_topk",
        rows.device,
        [rows],
        [TensorType(rows.dtype, few, rows.device), TensorType(DType.int64, few, rows.device)],
        {"descending": largest},
    )
    return _back(values.tensor, at), _back(indices.tensor, at)


@map_to(aten.kthvalue.default, kernels="base")
def kthvalue(
    self: TensorValue, k: int | Dim, dim: int, keepdim: bool
) -> tuple[TensorValue, TensorValue]:
    """kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False)
    -> (Tensor values, Tensor indices)"""
    shape = expected(0).shape
    if self.rank == 0 or is_empty(shape):
        return ops.reshape(self, shape), full(0, DType.int64, shape, self.device)
    values, indices = _sorted(self, dim, descending=False)
    at = axis(dim, self.rank)
    return (
        ops.reshape(_one(values, Dim(k) - 1, at), shape),
        ops.reshape(_one(indices, Dim(k) - 1, at), shape),
    )


@map_to(aten.median.dim, kernels="base")
def median_dim(self: TensorValue, dim: int, keepdim: bool) -> tuple[TensorValue, TensorValue]:
    """median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    shape = expected(0).shape
    if self.rank == 0 or is_empty(shape):
        return ops.reshape(self, shape), full(0, DType.int64, shape, self.device)
    values, indices = _median(self, axis(dim, self.rank))
    return ops.reshape(values, shape), ops.reshape(indices, shape)


@map_to(aten.median.default, kernels="base")
def median(self: TensorValue) -> TensorValue:
    """median(Tensor self) -> Tensor"""
    if self.rank == 0:
        return self
    if is_empty(self.shape):
        return full(float("nan"), self.dtype, [], self.device)
    values, _ = _median(ops.flatten(self), 0)
    return ops.reshape(values, [])


def _median(x: TensorValue, at: int) -> tuple[TensorValue, TensorValue]:
    """The lower median along a dimension, which keeps size 1; the first NaN if there is one."""
    values, indices = _sorted(x, at, descending=False)
    middle = (x.shape[at] - 1) // 2
    value, index = _one(values, middle, at), _one(indices, middle, at)
    if not x.dtype.is_float():
        return value, index
    most = _one(values, x.shape[at] - 1, at)
    spoiled = ops.is_nan(most)
    return ops.where(spoiled, most, value), ops.where(spoiled, greatest_at(x, at), index)


def _one(x: TensorValue, position: int | Dim, at: int) -> TensorValue:
    """The slice of size 1 at a position that may be symbolic."""
    where = Dim(position)
    if type(where).__name__ == "StaticDim":
        cut = [slice(None)] * x.rank
        cut[at] = slice(int(where), int(where) + 1)
        return x[tuple(cut)]
    return ops.gather(x, ops.shape_to_tensor([where]).to(x.device), at)
