"""Reductions: sums, products, extremes, their positions, truth, spread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.ops.common import reduce
from torch_max_backend.ops.common.axes import axes
from torch_max_backend.ops.common.promotion import Number, constant, to_dtype, working_dtype
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


def _reduced(
    value: TensorValue, dims: int | Sequence[int] | None, reducer: reduce.Reducer
) -> TensorValue:
    result = reduce.over(value, axes(dims, value.rank), reducer)
    return ops.reshape(result, expected().shape)


@map_to(aten.sum.dim_IntList, kernels="base")
def sum_(
    self: TensorValue, dim: list[int] | None, keepdim: bool, *, dtype: DType | None = None
) -> TensorValue:
    """sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor"""
    return _reduced(to_dtype(self, working_dtype()), dim, reduce.added)


@map_to(aten.mean.default, kernels="base")
def mean(self: TensorValue, *, dtype: DType | None = None) -> TensorValue:
    """mean(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return _reduced(to_dtype(self, working_dtype()), None, reduce.averaged)


@map_to(aten.mean.dim, kernels="base")
def mean_dim(
    self: TensorValue, dim: list[int] | None, keepdim: bool, *, dtype: DType | None = None
) -> TensorValue:
    """mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor"""
    return _reduced(to_dtype(self, working_dtype()), dim, reduce.averaged)


@map_to(aten.prod.default, kernels="base")
def prod(self: TensorValue, *, dtype: DType | None = None) -> TensorValue:
    """prod(Tensor self, *, ScalarType? dtype=None) -> Tensor"""
    return _prod(self, None)


@map_to(aten.prod.dim_int, kernels="base")
def prod_dim(
    self: TensorValue, dim: int, keepdim: bool, *, dtype: DType | None = None
) -> TensorValue:
    """prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None)
    -> Tensor"""
    return _prod(self, dim)


def _prod(self: TensorValue, dim: int | None) -> TensorValue:
    dtype = working_dtype()
    if dtype == DType.bool:
        return _reduced(to_dtype(self, dtype), dim, reduce.least)
    return _reduced(to_dtype(self, dtype), dim, reduce.multiplied)


def _extreme(reducer: reduce.Reducer) -> Callable[..., TensorValue]:
    def lowering(self: TensorValue, dim: list[int], keepdim: bool) -> TensorValue:
        """amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor"""
        return _reduced(self, dim, reducer)

    return lowering


def _extreme_of_all(reducer: reduce.Reducer) -> Callable[..., TensorValue]:
    def lowering(self: TensorValue) -> TensorValue:
        """max(Tensor self) -> Tensor"""
        return _reduced(self, None, reducer)

    return lowering


def _position(finder: reduce.Reducer) -> Callable[..., TensorValue]:
    def lowering(self: TensorValue, dim: int | None, keepdim: bool) -> TensorValue:
        """argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"""
        return _reduced(self, dim, finder)

    return lowering


def _extreme_and_position(
    reducer: reduce.Reducer, finder: reduce.Reducer
) -> Callable[..., tuple[TensorValue | None, TensorValue | None]]:
    def lowering(
        self: TensorValue, dim: int, keepdim: bool
    ) -> tuple[TensorValue | None, TensorValue | None]:
        """max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
        return (
            _reduced(self, dim, reducer) if is_used(0) else None,
            _reduced(self, dim, finder) if is_used(1) else None,
        )

    return lowering


for _name, _reducer, _finder in (
    ("max", reduce.greatest, reduce.greatest_at),
    ("min", reduce.least, reduce.least_at),
):
    map_to(getattr(aten, f"a{_name}").default, kernels="base")(_extreme(_reducer))
    map_to(getattr(aten, _name).default, kernels="base")(_extreme_of_all(_reducer))
    map_to(getattr(aten, _name).dim, kernels="base")(_extreme_and_position(_reducer, _finder))
    map_to(getattr(aten, f"arg{_name}").default, kernels="base")(_position(_finder))


@map_to(aten.any.default, aten._is_any_true.default, kernels="base")
def any_(self: TensorValue) -> TensorValue:
    """any(Tensor self) -> Tensor"""
    return _any(self, None)


@map_to(aten._is_all_true.default, kernels="base")
def is_all_true(self: TensorValue) -> TensorValue:
    """_is_all_true(Tensor self) -> Tensor"""
    return ops.logical_not(_any(ops.logical_not(self), None))


@map_to(aten.any.dim, kernels="base")
def any_dim(self: TensorValue, dim: int, keepdim: bool) -> TensorValue:
    """any.dim(Tensor self, int dim, bool keepdim=False) -> Tensor"""
    return _any(self, dim)


@map_to(aten.any.dims, kernels="base")
def any_dims(self: TensorValue, dim: list[int] | None, keepdim: bool) -> TensorValue:
    """any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor"""
    if dim is not None and len(dim) == 0:
        # Unlike other reductions, torch takes an empty list for no dimension at all.
        return to_dtype(to_dtype(self, DType.bool), expected().dtype)
    return _any(self, dim)


def _any(self: TensorValue, dim: int | list[int] | None) -> TensorValue:
    truth = to_dtype(to_dtype(self, DType.bool), DType.uint8)
    found = _reduced(truth, dim, reduce.greatest)
    # torch answers uint8 for uint8.
    return to_dtype(found, expected().dtype)


@map_to(aten.var.correction, kernels="base")
def var(
    self: TensorValue,
    dim: list[int] | None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> TensorValue:
    """var.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None,
    bool keepdim=False) -> Tensor"""
    return ops.reshape(_variance(self, dim, correction)[0], expected().shape)


@map_to(aten.var_mean.correction, kernels="base")
def var_mean(
    self: TensorValue,
    dim: list[int] | None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> tuple[TensorValue, TensorValue]:
    """var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None,
    bool keepdim=False) -> (Tensor, Tensor)"""
    spread, center = _variance(self, dim, correction)
    return ops.reshape(spread, expected(0).shape), ops.reshape(center, expected(1).shape)


def _variance(
    self: TensorValue, dim: list[int] | None, correction: Number | None
) -> tuple[TensorValue, TensorValue]:
    reduced = axes(dim, self.rank)
    center = reduce.mean(self, reduced)
    away = self - center
    squares = reduce.total(away * away, reduced)
    n = reduce.count([self.shape[i] for i in reduced if self.rank], self.dtype, self.device)
    freedom = n - constant(1 if correction is None else correction, self.dtype, self.device)
    # torch divides by zero, not by a negative count, when the correction exceeds the count.
    return squares / ops.max(freedom, constant(0, self.dtype, self.device)), center
