"""Parts of a tensor, and a tensor with a part replaced."""

from __future__ import annotations

import torch
from max.graph import Dim, TensorValue, ops

from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.copies import slice_scatter_copy
from torch_max_backend.ops.common.positions import (
    Size,
    along,
    iota,
    is_negative,
    is_zero,
    on_device,
    scalar,
    static,
    window,
    without,
)
from torch_max_backend.ops.common.promotion import full, is_zeros, to_dtype
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

# What stands for "to the end" in torch's graphs and in MAX's slices alike.
_END = 2**63 - 1


@map_to(aten.slice.Tensor, native16=True)
def slice_(
    self: TensorValue,
    dim: int = 0,
    start: int | Dim | None = None,
    end: int | Dim | None = None,
    step: int | Dim = 1,
) -> TensorValue:
    """slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)
    -> Tensor(a)"""
    dim = axis(dim, self.rank)
    size, length = self.shape[dim], expected().shape[dim]
    first = 0 if start is None else start
    last = _END if end is None else end
    by = static(step)
    whole, a, b = static(size), static(first), static(last)
    if whole is not None and a is not None and b is not None and by is not None:
        a, b, by = slice(a, b, by).indices(whole)
        return window(self, dim, a, len(range(a, b, by)), by)
    if by == 1:
        if length == size or is_zero(length):
            return window(self, dim, 0, length)
        # torch says how many; where they begin follows from the start or from the end.
        if a is not None and a >= 0:
            return window(self, dim, a, length)
        if b == _END:
            return window(self, dim, size - length, length)
    # MAX clamps the bounds when the model runs, as torch does.
    bounds = [v if static(v) is None else static(v) for v in (first, last, step)]
    index: list[object] = [slice(None)] * self.rank
    index[dim] = (
        slice(*[v if isinstance(v, int) else scalar(v) for v in bounds]),
        length,
    )
    return ops.slice_tensor(self, index)


@map_to(aten.select.int, native16=True)
def select(self: TensorValue, dim: int, index: int | Dim) -> TensorValue:
    """select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)"""
    dim = axis(dim, self.rank)
    position = self.shape[dim] + index if is_negative("index", index) else index
    return without(window(self, dim, position, 1), dim)


def _windows(value: TensorValue, dim: int, sizes: list[Size]) -> tuple[TensorValue, ...]:
    start: Size = 0
    parts = []
    for size in sizes:
        parts.append(window(value, dim, start, size))
        start = start + size
    return tuple(parts)


def _expected_sizes(dim: int) -> list[Size]:
    return [expected(i).shape[dim] for i in range(len(current_node().outputs))]


@map_to(aten.split.Tensor, aten.unsafe_split.Tensor, native16=True)
def split(self: TensorValue, split_size: int | Dim, dim: int = 0) -> tuple[TensorValue, ...]:
    """split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]"""
    dim = axis(dim, self.rank)
    return _windows(self, dim, _expected_sizes(dim))


@map_to(aten.split_with_sizes.default, native16=True)
def split_with_sizes(
    self: TensorValue, split_sizes: list[int | Dim], dim: int = 0
) -> tuple[TensorValue, ...]:
    """split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]"""
    dim = axis(dim, self.rank)
    return _windows(self, dim, _expected_sizes(dim))


@map_to(aten.unbind.int, native16=True)
def unbind(self: TensorValue, dim: int = 0) -> tuple[TensorValue, ...]:
    """unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]"""
    dim = axis(dim, self.rank)
    count = len(current_node().outputs)
    return tuple(without(window(self, dim, i, 1), dim) for i in range(count))


def _place(
    self: TensorValue, src: TensorValue, dim: int, start: Size, count: Size, step: Size
) -> TensorValue:
    """``self`` with ``count`` elements of a dimension, from ``start`` every ``step``, replaced."""
    if is_zero(count) or any(is_zero(s) for s in self.shape):
        return self
    size = self.shape[dim]
    shape = [count if i == dim else s for i, s in enumerate(self.shape)]
    src = to_dtype(src, self.dtype)
    src = src if list(src.shape) == shape else ops.rebind(src, shape)
    if static(step) == 1:
        ends = [(0, start), (start + count, size - start - count)]
        before, after = [window(self, dim, first, length) for first, length in ends]
        parts = [p for p in (before, src, after) if not is_zero(p.shape[dim])]
        return parts[0] if len(parts) == 1 else ops.concat(parts, dim)
    if self.device.is_cpu():
        base = None if is_zeros(self) else self
        return slice_scatter_copy(base, self.shape, src, dim, start, step)
    device = self.device
    zero, by = on_device(0, device), on_device(step, device)
    distance = iota(size, device) - on_device(start, device)
    place = ops.floor_div(distance, by)
    inside = ops.logical_and(
        ops.equal(ops.mod(distance, by), zero),
        ops.logical_and(
            ops.greater_equal(place, zero), ops.greater(on_device(count, device), place)
        ),
    )
    picked = ops.gather(src, ops.where(inside, place, zero), dim)
    inside = ops.broadcast_to(along(inside, dim, self.rank), self.shape)
    return ops.where(inside, picked, self)


@map_to(aten.slice_scatter.default, native16=True, kernels="base")
def slice_scatter(
    self: TensorValue,
    src: TensorValue,
    dim: int = 0,
    start: int | Dim | None = None,
    end: int | Dim | None = None,
    step: int | Dim = 1,
) -> TensorValue:
    """slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None,
    SymInt step=1) -> Tensor"""
    dim = axis(dim, self.rank)
    size, count = self.shape[dim], src.shape[dim]
    first = 0 if start is None else start
    known, whole = static(first), static(size)
    if known is not None and whole is not None:
        first, _, _ = slice(known, None, 1).indices(whole)
    elif is_negative("start", first):
        # Where the start was clamped to 0, all but the end's part of the dimension is replaced.
        to_the_end = (end is None or static(end) == _END) and static(step) == 1
        first = size - count if to_the_end else size + first
    return _place(self, src, dim, first, count, step)


@map_to(aten.slice_backward.default, native16=True, kernels="base")
def slice_backward(
    grad_output: TensorValue,
    input_sizes: list[int | Dim],
    dim: int,
    start: int | Dim,
    end: int | Dim,
    step: int | Dim,
) -> TensorValue:
    """slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end,
    SymInt step) -> Tensor"""
    zeros = full(0, grad_output.dtype, input_sizes, grad_output.device)
    return slice_scatter(zeros, grad_output, dim, start, end, step)


@map_to(aten.select_backward.default, native16=True)
def select_backward(
    grad_output: TensorValue, input_sizes: list[int | Dim], dim: int, index: int | Dim
) -> TensorValue:
    """select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index)
    -> Tensor"""
    dim = axis(dim, len(input_sizes))
    zeros = full(0, grad_output.dtype, input_sizes, grad_output.device)
    position = zeros.shape[dim] + index if is_negative("index", index) else index
    row = ops.reshape(grad_output, [1 if i == dim else s for i, s in enumerate(zeros.shape)])
    return _place(zeros, row, dim, position, 1, 1)


@map_to(aten.select_scatter.default, native16=True)
def select_scatter(self: TensorValue, src: TensorValue, dim: int, index: int | Dim) -> TensorValue:
    """select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor"""
    dim = axis(dim, self.rank)
    position = self.shape[dim] + index if is_negative("index", index) else index
    row = ops.reshape(src, [1 if i == dim else s for i, s in enumerate(self.shape)])
    return _place(self, row, dim, position, 1, 1)


@map_to(aten.narrow_copy.default, native16=True)
def narrow_copy(self: TensorValue, dim: int, start: int | Dim, length: int | Dim) -> TensorValue:
    """narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor"""
    dim = axis(dim, self.rank)
    first = self.shape[dim] + start if is_negative("start", start) else start
    return window(self, dim, first, length)
