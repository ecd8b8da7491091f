"""Elements by index.

An index out of range never touches memory outside the tensor: on CPU it raises when the model
runs, as in eager; on a GPU it is clamped into range.
"""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorType, TensorValue, ops
from torch.fx import Node

from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.max_dtypes import torch_dtype
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.bank import nothing, number
from torch_max_backend.ops.common.combining import LOGICAL, combine, combine_along, combine_rows
from torch_max_backend.ops.common.positions import (
    Size,
    along,
    checked,
    iota,
    is_zero,
    on_device,
    product,
    static,
    take_rows,
    window,
)
from torch_max_backend.ops.common.promotion import Operand, constant, full, is_zeros, to_dtype
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

LIBRARIES = ("base", "indexing.scatter")
# Rows of so many elements or more are moved whole.
_LONG = 8
# Kernels take tensors of so many dims, or of more if torch's have.
_RANK = 4


@map_to(aten.index_select.default, native16=True)
def index_select(self: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    """index_select(Tensor self, int dim, Tensor index) -> Tensor"""
    if self.rank == 0:
        return ops.reshape(take_rows(ops.reshape(self, [1]), index, 0, wrap=False), [])
    flat = ops.reshape(index, [1]) if index.rank == 0 else index
    return take_rows(self, flat, axis(dim, self.rank), wrap=False)


def strides(shape: list[Size]) -> list[Size]:
    """The strides of a contiguous tensor of a shape."""
    return [product(shape[i + 1 :]) for i in range(len(shape))]


def times(index: TensorValue, size: Size) -> TensorValue:
    """Indices times a size."""
    if static(size) == 1:
        return index
    return index * on_device(size, index.device)


def flat_positions(index: TensorValue, dim: int, shape: list[Size]) -> TensorValue:
    """Positions in a flattened tensor of ``shape`` of the elements that differ from the index's own
    place only in ``dim``, where the index says which."""
    steps = strides(shape)
    position = times(checked(index, shape[dim], wrap=False), steps[dim])
    for i, size in enumerate(index.shape):
        if i != dim and static(size) != 1:
            position = position + along(times(iota(size, index.device), steps[i]), i, index.rank)
    return position


@map_to(aten.gather.default, native16=True, kernels="base")
def gather(
    self: TensorValue, dim: int, index: TensorValue, *, sparse_grad: bool = False
) -> TensorValue:
    """gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"""
    spec = expected()
    if any(is_zero(s) for s in spec.shape):
        return full(0, spec.dtype, spec.shape, spec.device)
    if self.rank == 0 or index.rank == 0:
        rows = ops.reshape(self, [product(self.shape)])
        picked = take_rows(rows, ops.reshape(index, [product(index.shape)]), 0, wrap=False)
        return ops.reshape(picked, list(spec.shape))
    dim = axis(dim, self.rank)
    if self.device.is_cpu():
        if _is_of_rows(self, dim):
            return take_rows(self, _one_of_rows(index, dim), dim, wrap=False)
        x, places = (_deep(v) for v in (self, to_dtype(index, DType.int64)))
        out = TensorType(self.dtype, places.shape, self.device)
        along = number(dim + x.rank - self.rank)
        (found,) = ops.custom("tmb_gather", self.device, [x, places, along], [out])
        return ops.reshape(found.tensor, spec.shape)
    positions = flat_positions(index, dim, list(self.shape))
    return ops.gather(ops.reshape(self, [product(self.shape)]), positions, 0)


def _places(self: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    """Positions in the flattened tensor that an index along a dimension names."""
    if self.rank == 0:
        return checked(index, 1, wrap=False)
    if index.rank == 0:
        index = ops.reshape(index, [1] * self.rank)
    return flat_positions(index, axis(dim, self.rank), list(self.shape))


def _covered(src: TensorValue, index: TensorValue) -> TensorValue:
    """The part of ``src`` that the index covers."""
    if src.rank != index.rank:
        return ops.reshape(src, [product(src.shape)])
    for i, size in enumerate(index.shape):
        src = window(src, i, 0, size)
    return src


def _combine_elements(
    self: TensorValue,
    dim: int,
    index: TensorValue,
    src: TensorValue,
    how: str,
    include_self: bool = True,
) -> TensorValue:
    """``self[.., index[.., j, ..], ..]`` combined with ``src[.., j, ..]`` on CPU."""
    if self.dtype == DType.bool:
        wide = [ops.cast(v, DType.uint8) for v in (self, src)]
        found = _combine_elements(wide[0], dim, index, wide[1], LOGICAL[how], include_self)
        return to_dtype(found, self.dtype)
    if _is_of_rows(self, dim):
        rows = _one_of_rows(index, axis(dim, self.rank))
        return combine_along(self, dim, rows, _covered(src, index), how, include_self)
    rank = max(self.rank, 1)
    whole, places, values = (
        _deep(v if v.rank == rank else ops.reshape(v, [1] * (rank - 1) + [product(v.shape)]))
        for v in (self, to_dtype(index, DType.int64), src)
    )
    settings = [number(axis(dim, rank) + whole.rank - rank), number(include_self)]
    base = nothing(self.dtype, whole.rank) if is_zeros(self) else whole
    inputs = [base, places, values, *settings]
    (found,) = ops.custom("tmb_scatter_elements", self.device, inputs, [whole.type], {"kind": how})
    return ops.reshape(found.tensor, self.shape)


def _deep(value: TensorValue) -> TensorValue:
    """The value with dims of one element before its own, so that few ranks have kernels."""
    return ops.reshape(value, [1] * (_RANK - value.rank) + [*value.shape])


def _is_of_rows(self: TensorValue, dim: int) -> bool:
    """Whether the node's index is one of a single dim that was expanded: the same for all elements
    of a row, as graph networks have it; and rows are long enough to gain from that."""
    node = current_node().node.args[2]
    index = node.meta["val"] if isinstance(node, Node) else None
    if index is None or index.dim() != self.rank or self.rank < 2:
        return False
    dim = axis(dim, self.rank)
    others = [i for i in range(self.rank) if i != dim]
    inner = static(product(self.shape[dim + 1 :]))
    if inner is None or inner < _LONG:
        return False
    return all(
        isinstance(size := index.shape[i], int)
        and size == static(self.shape[i])
        and (size == 1 or index.stride(i) == 0)
        for i in others
    ) and any(index.shape[i] > 1 for i in others)


def _one_of_rows(index: TensorValue, dim: int) -> TensorValue:
    """The single dim of such an index."""
    for i in range(index.rank):
        index = index if i == dim else window(index, i, 0, 1)
    return ops.reshape(index, [index.shape[dim]])


def _scatter(
    self: TensorValue, dim: int, index: TensorValue, src: TensorValue, how: str
) -> TensorValue:
    if any(is_zero(s) for s in [*self.shape, *index.shape]):
        return self
    if self.device.is_cpu():
        return _combine_elements(self, dim, index, src, how)
    return combine(self, _places(self, dim, index), _covered(src, index), how)


@map_to(aten.scatter.src, native16=True, kernels=LIBRARIES)
def scatter_src(self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> TensorValue:
    """scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    return _scatter(self, dim, index, src, "write")


@map_to(aten.scatter.value, native16=True, kernels=LIBRARIES)
def scatter_value(self: TensorValue, dim: int, index: TensorValue, value: Operand) -> TensorValue:
    """scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor"""
    src = full(value, self.dtype, index.shape, self.device)
    return _scatter(self, dim, index, src, "write")


@map_to(aten.scatter_add.default, kernels=LIBRARIES)
def scatter_add(self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> TensorValue:
    """scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    return _scatter(self, dim, index, src, "sum")


_NAMES = {"add": "sum", "multiply": "prod"}


@map_to(aten.scatter.reduce, kernels=LIBRARIES)
def scatter_with(
    self: TensorValue, dim: int, index: TensorValue, src: TensorValue, *, reduce: str
) -> TensorValue:
    """scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor"""
    return _scatter(self, dim, index, src, _NAMES[reduce])


@map_to(aten.scatter.value_reduce, kernels=LIBRARIES)
def scatter_value_with(
    self: TensorValue, dim: int, index: TensorValue, value: Operand, *, reduce: str
) -> TensorValue:
    """scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce)
    -> Tensor"""
    src = full(value, self.dtype, index.shape, self.device)
    return _scatter(self, dim, index, src, _NAMES[reduce])


@map_to(aten.scatter_reduce.two, kernels=LIBRARIES)
def scatter_reduce(
    self: TensorValue,
    dim: int,
    index: TensorValue,
    src: TensorValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorValue:
    """scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *,
    bool include_self=True) -> Tensor"""
    if any(is_zero(s) for s in [*self.shape, *index.shape]):
        return self
    if not self.device.is_cpu():
        places = _places(self, dim, index)
        return _reduced(self, places, _covered(src, index), reduce, include_self)
    if reduce != "mean":
        return _combine_elements(self, dim, index, src, reduce, include_self)
    total = _combine_elements(self, dim, index, src, "sum", include_self)
    ones = full(1, DType.int64, index.shape, self.device)
    start = full(1, DType.int64, self.shape, self.device)
    return _mean(total, _combine_elements(start, dim, index, ones, "sum", include_self))


def _mean(total: TensorValue, count: TensorValue) -> TensorValue:
    count = ops.cast(count, total.dtype)
    return ops.div(total, count) if total.dtype.is_float() else ops.floor_div(total, count)


@map_to(aten.index_reduce.default, kernels=LIBRARIES)
def index_reduce(
    self: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    reduce: str,
    *,
    include_self: bool = True,
) -> TensorValue:
    """index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *,
    bool include_self=True) -> Tensor"""
    if any(is_zero(s) for s in [*self.shape, *index.shape]):
        return self
    dim = axis(dim, self.rank)
    if self.device.is_cpu():
        how = "sum" if reduce == "mean" else reduce
        found = combine_along(self, dim, index, source, how, include_self)
        if reduce != "mean":
            return found
        sizes = self.shape[dim] if self.rank else 1, product(index.shape)
        ones = [full(1, DType.int64, [1, size, 1], self.device) for size in sizes]
        places = ops.reshape(index, [sizes[1]])
        uses = combine_rows(ones[0], places, ones[1], "sum", include_self=include_self)
        spread = [sizes[0] if i == dim else 1 for i in range(self.rank)]
        return _mean(found, ops.broadcast_to(ops.reshape(uses, spread), found.shape))
    if source.rank:
        index = ops.broadcast_to(
            along(ops.reshape(index, [product(index.shape)]), dim, source.rank), source.shape
        )
    return _reduced(self, _places(self, dim, index), source, reduce, include_self)


def _reduced(
    self: TensorValue, places: TensorValue, src: TensorValue, how: str, include_self: bool
) -> TensorValue:
    base = self
    if not include_self:
        neutral = full(_neutral(how, self.dtype), self.dtype, places.shape, self.device)
        base = combine(self, places, neutral, "write")
    if how != "mean":
        return combine(base, places, src, how)
    total = combine(base, places, src, "sum")
    ones = full(1, DType.int64, places.shape, self.device)
    start = full(int(include_self), DType.int64, self.shape, self.device)
    count = ops.max(combine(start, places, ones, "sum"), constant(1, DType.int64, self.device))
    return _mean(total, count)


def _neutral(how: str, dtype: DType) -> int | float | bool:
    if how in ("sum", "mean", "prod"):
        return int(how == "prod")
    if dtype == DType.bool:
        return how == "amin"
    if dtype.is_float():
        return float("inf") if how == "amin" else -float("inf")
    limits = torch.iinfo(torch_dtype(dtype))
    return limits.max if how == "amin" else limits.min


@map_to(aten.put.default, kernels=LIBRARIES)
def put(
    self: TensorValue, index: TensorValue, source: TensorValue, accumulate: bool = False
) -> TensorValue:
    """put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor"""
    if any(is_zero(s) for s in [*self.shape, *index.shape]):
        return self
    places = checked(index, product(self.shape), wrap=True)
    source = ops.reshape(source, [product(source.shape)])
    return combine(self, places, source, "sum" if accumulate else "write")


def _bool_mask(mask: torch.Tensor) -> Refusal | None:
    return None if mask.dtype == torch.bool else Refusal("the mask must be of dtype bool")


@map_to(aten.masked_scatter.default, native16=True, supports=_bool_mask)
def masked_scatter(self: TensorValue, mask: TensorValue, source: TensorValue) -> TensorValue:
    """masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor

    A source with fewer elements than the mask has true ones raises on CPU when the model runs.
    """
    shape = list(expected().shape)
    self = ops.broadcast_to(self, shape) if list(self.shape) != shape else self
    if any(is_zero(s) for s in [*shape, *source.shape]):
        return self
    count = product(shape)
    flags = ops.reshape(ops.broadcast_to(to_dtype(mask, DType.bool), shape), [count])
    order = ops.cumsum(ops.cast(flags, DType.int64)) - 1
    order = ops.where(flags, order, constant(0, DType.int64, self.device))
    picked = take_rows(ops.reshape(source, [product(source.shape)]), order, 0, wrap=False)
    flat = ops.reshape(self, [count])
    return ops.reshape(ops.where(flags, picked, flat), shape)


@map_to(aten.take.default, native16=True)
def take(self: TensorValue, index: TensorValue) -> TensorValue:
    """take(Tensor self, Tensor index) -> Tensor"""
    return take_rows(ops.reshape(self, [product(self.shape)]), index, 0, wrap=True)
