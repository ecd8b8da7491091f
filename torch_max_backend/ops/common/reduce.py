"""Reductions over several axes, with torch's answers where MAX's differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.ops.common.positions import as_lines
from torch_max_backend.ops.common.promotion import constant, full

Reducer = Callable[[TensorValue, int], TensorValue]


def over(value: TensorValue, axes: Sequence[int], reducer: Reducer) -> TensorValue:
    """Reduce axes to size 1, one run of adjacent axes at a time.

    Args:
        value: A value of any rank.
        axes: Non-negative axes in ascending order.
        reducer: Reduces one axis of a value and keeps it with size 1.
    """
    if value.rank == 0:
        return ops.reshape(reducer(ops.reshape(value, [1]), 0), [])
    for first, last in reversed(_runs(axes)):
        if first == last:
            value = reducer(value, first)  # A reshape would part it from what computes it.
            continue
        shape = list(value.shape)
        merged = math.prod(shape[first : last + 1], start=Dim(1))
        flat = ops.reshape(value, [*shape[:first], merged, *shape[last + 1 :]])
        kept = [*shape[:first], *[1] * (last + 1 - first), *shape[last + 1 :]]
        value = ops.reshape(reducer(flat, first), kept)
    return value


def _runs(axes: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for axis in axes:
        if runs and runs[-1][1] == axis - 1:
            runs[-1] = (runs[-1][0], axis)
        else:
            runs.append((axis, axis))
    return runs


def total(value: TensorValue, axes: Sequence[int]) -> TensorValue:
    """The sum over axes, which keep size 1."""
    return over(value, axes, added)


def mean(value: TensorValue, axes: Sequence[int]) -> TensorValue:
    """The mean over axes, which keep size 1."""
    return over(value, axes, averaged)


def added(value: TensorValue, axis: int) -> TensorValue:
    """The sum along an axis, which keeps size 1."""
    return _by_kernel(value, axis, "sum") if value.device.is_cpu() else ops.sum(value, axis)


def averaged(value: TensorValue, axis: int) -> TensorValue:
    """The mean along an axis, which keeps size 1."""
    if not value.device.is_cpu():
        return ops.mean(value, axis)
    return ops.div(
        _by_kernel(value, axis, "sum"), count([value.shape[axis]], value.dtype, value.device)
    )


def multiplied(value: TensorValue, axis: int) -> TensorValue:
    """The product along an axis, which keeps size 1."""
    return _by_kernel(value, axis, "prod") if value.device.is_cpu() else ops.prod(value, axis)


def greatest(value: TensorValue, axis: int) -> TensorValue:
    """The maximum along an axis, which keeps size 1; NaN wins."""
    return _extreme(value, axis, "max")


def least(value: TensorValue, axis: int) -> TensorValue:
    """The minimum along an axis, which keeps size 1; NaN wins."""
    return _extreme(value, axis, "min")


def _extreme(value: TensorValue, axis: int, kind: str) -> TensorValue:
    if value.dtype == DType.bool:
        return _extreme(value.cast(DType.uint8), axis, kind).cast(DType.bool)
    if value.device.is_cpu():
        return _by_kernel(value, axis, kind)
    result = (ops.max if kind == "max" else ops.min)(value, axis=axis)
    if not value.dtype.is_float():
        return result
    worst = -math.inf if kind == "max" else math.inf
    zero = constant(0, value.dtype, value.device)
    limit = constant(worst, value.dtype, value.device)
    # MAX skips NaN, and starts from the greatest finite number instead of infinity. One sum
    # tells both: NaN if there is a NaN, 0 if all elements are infinities of the worst sign.
    weight = ops.where(ops.equal(value, limit), zero, constant(1, value.dtype, value.device))
    marks = ops.sum(ops.where(ops.is_nan(value), value, weight), axis)
    return ops.where(ops.is_nan(marks), marks, ops.where(ops.equal(marks, zero), limit, result))


def _by_kernel(value: TensorValue, axis: int, kind: str) -> TensorValue:
    """The reduction by a kernel of the library "base", of which what computes the value becomes a
    part. MAX's own are up to three times as slow on CPU, and its compiler dies of some graphs
    where two results share two of them."""
    axis %= value.rank
    shape = [*value.shape[:axis], 1, *value.shape[axis + 1 :]]
    if axis < value.rank - 2:
        inner = math.prod(value.shape[axis + 1 :], start=Dim(1))
        value = ops.reshape(value, [*value.shape[: axis + 1], inner])
    out = TensorType(value.dtype, [*shape[: axis + 1], *value.shape[axis + 1 :]], value.device)
    settings = {"kind": kind, "beside": axis < value.rank - 1}
    result = ops.custom("tmb_reduce", value.device, [value], [out], settings)[0].tensor
    return ops.reshape(result, shape) if out.shape != shape else result


def greatest_at(value: TensorValue, axis: int) -> TensorValue:
    """The first position of the maximum along an axis, which keeps size 1; NaN wins."""
    return _position(value, axis, "max")


def least_at(value: TensorValue, axis: int) -> TensorValue:
    """The first position of the minimum along an axis, which keeps size 1; NaN wins."""
    return _position(value, axis, "min")


def _position(value: TensorValue, axis: int, kind: str) -> TensorValue:
    if value.dtype == DType.bool:
        value = value.cast(DType.uint8)
    if value.device.is_cpu():
        return _position_by_kernel(value, axis, kind)
    if _static(value.shape[axis]) and int(value.shape[axis]) == 1:
        # MAX refuses to look for a position among one.
        return full(0, DType.int64, value.shape, value.device)
    if value.dtype.is_float():
        # MAX skips NaN: in a row that has one, look for it instead.
        zero = constant(0, value.dtype, value.device)
        nan = ops.is_nan(value)
        spoiled = ops.is_nan(ops.sum(ops.where(nan, value, zero), axis))
        sign = -1 if kind == "min" else 1
        sought = ops.where(nan, constant(sign, value.dtype, value.device), zero)
        value = ops.where(ops.broadcast_to(spoiled, value.shape), sought, value)
    return (ops.argmax if kind == "max" else ops.argmin)(value, axis=axis)


def _position_by_kernel(value: TensorValue, axis: int, kind: str) -> TensorValue:
    axis %= value.rank
    lines = as_lines(value, axis)
    outer, _, inner = lines.shape
    out = TensorType(DType.int64, [outer, 1, inner], value.device)
    result = ops.custom("tmb_position", value.device, [lines], [out], {"kind": kind})
    return ops.reshape(result[0].tensor, [*value.shape[:axis], 1, *value.shape[axis + 1 :]])


def count(sizes: Sequence[int | Dim], dtype: DType, device: DeviceRef) -> TensorValue:
    """The product of sizes as a 0-d value."""
    n = math.prod(sizes, start=Dim(1))
    if _static(n):
        return constant(int(n), dtype, device)
    value = ops.reshape(ops.shape_to_tensor([n]), [])
    return ops.cast(value, dtype).to(device)


def is_empty(sizes: Sequence[int | Dim]) -> bool:
    """Whether a static size is zero."""
    return any(_static(size) and int(size) == 0 for size in sizes)


def _static(size: int | Dim) -> bool:
    return isinstance(size, int) or type(size).__name__ == "StaticDim"
