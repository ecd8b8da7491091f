"""Views that only strides describe. MAX values have none: these are computed."""

from __future__ import annotations

from typing import Any

import torch
from max.graph import DeviceRef, Dim, TensorValue, ops
from torch.fx import Node

from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.graph.shapes import hint
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.bank import permuted
from torch_max_backend.ops.common.copies import strided_copy
from torch_max_backend.ops.common.positions import (
    Size,
    along,
    iota,
    is_zero,
    on_device,
    product,
    static,
    window,
)
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.shape import reshaped, to_expected
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


@map_to(aten.unfold.default, native16=True, kernels="base")
def unfold(self: TensorValue, dimension: int, size: int, step: int) -> TensorValue:
    """unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)"""
    spec = expected()
    if any(is_zero(s) for s in spec.shape):
        return full(0, spec.dtype, spec.shape, spec.device)
    if self.rank == 0:
        return ops.reshape(self, list(spec.shape))
    dim = axis(dimension, self.rank)
    if self.device.is_cpu():
        strides = [product(self.shape[i + 1 :]) for i in range(self.rank)]
        between = [s * step if i == dim else s for i, s in enumerate(strides)]
        flat = ops.reshape(self, [product(self.shape)])
        return strided_copy(flat, spec.shape, [*between, strides[dim]], 0)
    starts = ops.unsqueeze(iota(spec.shape[dim], self.device) * step, 1)
    windows = ops.gather(self, starts + ops.unsqueeze(iota(size, self.device), 0), dim)
    order = [i for i in range(windows.rank) if i != dim + 1]
    return permuted(windows, [*order, dim + 1])


def _memory_order(value: torch.Tensor) -> list[int] | None:
    """The dims of a dense tensor from outermost to innermost in memory, ``None`` of others."""
    strides = [hint(s) for s in value.stride()]
    sizes = [hint(s) for s in value.shape]
    order = sorted(range(value.dim()), key=lambda i: (-strides[i], -sizes[i], i))
    step = 1
    for i in reversed(order):
        if sizes[i] != 1:
            if strides[i] != step:
                return None
            step *= sizes[i]
    return order


def _within_dense(
    self: torch.Tensor,
    size: list[Any],
    stride: list[Any],
    storage_offset: Any = None,
) -> Refusal | None:
    if not isinstance(self.storage_offset(), int):
        return Refusal("the tensor begins at a symbolic offset in its memory")
    if self.numel() == 0 or _memory_order(self) is None:
        return Refusal("the tensor does not fill its memory densely, so its memory is not at hand")
    first = 0 if storage_offset is None else hint(storage_offset) - self.storage_offset()
    sizes, strides = [hint(s) for s in size], [hint(s) for s in stride]
    last = first + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if 0 not in sizes and not (first >= 0 and last < hint(self.numel())):
        return Refusal("it reaches memory outside of its argument")
    return None


@map_to(aten.as_strided.default, supports=_within_dense, native16=True, kernels="base")
def as_strided(
    self: TensorValue,
    size: list[int | Dim],
    stride: list[int | Dim],
    storage_offset: int | Dim | None = None,
) -> TensorValue:
    """as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None)
    -> Tensor(a)"""
    if any(is_zero(s) for s in expected().shape):
        return full(0, self.dtype, expected().shape, self.device)
    flat, _ = _memory(self)
    offset = _offset(storage_offset)
    significant = [i for i, s in enumerate(size) if static(s) != 1]
    dense = all(
        Dim(stride[i]) == product([size[j] for j in significant if j > i]) for i in significant
    )
    if dense and is_zero(offset):
        return to_expected(window(flat, 0, 0, product(size)))
    if self.device.is_cpu() and size:
        return strided_copy(flat, expected().shape, stride, offset)
    return ops.gather(flat, _positions(size, stride, offset, self.device), 0)


@map_to(aten.as_strided_scatter.default, supports=_within_dense, native16=True)
def as_strided_scatter(
    self: TensorValue,
    src: TensorValue,
    size: list[int | Dim],
    stride: list[int | Dim],
    storage_offset: int | Dim | None = None,
) -> TensorValue:
    """as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride,
    SymInt? storage_offset=None) -> Tensor"""
    if any(is_zero(s) for s in src.shape):
        return self
    flat, order = _memory(self)
    positions = _positions(size, stride, _offset(storage_offset), self.device)
    count = product(src.shape)
    written = ops.scatter_nd(flat, reshaped(src, [count]), reshaped(positions, [count, 1]))
    value = reshaped(written, [self.shape[i] for i in order])
    return permuted(value, [order.index(i) for i in range(self.rank)])


def _memory(value: TensorValue) -> tuple[TensorValue, list[int]]:
    """The node's first argument as its memory holds it, and its dims in that order."""
    order = _memory_order(_argument())
    assert order is not None
    return reshaped(permuted(value, order), [product(value.shape)]), order


def _argument() -> torch.Tensor:
    source = current_node().node.args[0]
    assert isinstance(source, Node)
    return source.meta["val"]


def _offset(storage_offset: Size | None) -> Size:
    """Where the result begins, counted from where the argument does."""
    return 0 if storage_offset is None else storage_offset - int(_argument().storage_offset())


def _positions(
    size: list[Size], stride: list[Size], offset: Size, device: DeviceRef
) -> TensorValue:
    position = on_device(offset, device)
    for i, (count, step) in enumerate(zip(size, stride, strict=True)):
        if static(count) != 1:
            position = position + along(iota(count, device) * on_device(step, device), i, len(size))
    return ops.broadcast_to(position, size)


@map_to(aten.diagonal.default, native16=True)
def diagonal(self: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorValue:
    """diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)"""
    spec = expected()
    if any(is_zero(s) for s in spec.shape):
        return full(0, spec.dtype, spec.shape, spec.device)
    row, column = axis(dim1, self.rank), axis(dim2, self.rank)
    others = [i for i in range(self.rank) if i not in (row, column)]
    value = permuted(self, [*others, row, column])
    width = value.shape[-1]
    flat = ops.reshape(value, [*value.shape[:-2], value.shape[-2] * width])
    first = offset if offset >= 0 else width * -offset
    count = spec.shape[-1]
    if static(width) is not None and static(count) is not None:
        return window(flat, flat.rank - 1, first, count, int(width) + 1)
    steps = iota(count, self.device) * on_device(width + 1, self.device)
    return ops.gather(flat, steps + on_device(first, self.device), flat.rank - 1)


@map_to(aten.diagonal_scatter.default, native16=True)
def diagonal_scatter(
    self: TensorValue, src: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorValue:
    """diagonal_scatter(Tensor self, Tensor src, int offset=0, int dim1=0, int dim2=1) -> Tensor"""
    if any(is_zero(s) for s in [*self.shape, *src.shape]):
        return self
    row, column = axis(dim1, self.rank), axis(dim2, self.rank)
    order = [*(i for i in range(self.rank) if i not in (row, column)), row, column]
    value = permuted(self, order)
    rows, columns = (iota(s, self.device) for s in value.shape[-2:])
    # Beyond the diagonal's ends the gather takes any element; the mask drops it.
    last = on_device(src.shape[-1] - 1, self.device)
    place = ops.max(rows + min(offset, 0), on_device(0, self.device))
    spread = ops.gather(to_dtype(src, self.dtype), ops.min(place, last), src.rank - 1)
    on_it = ops.equal(ops.unsqueeze(rows + offset, 1), ops.unsqueeze(columns, 0))
    result = ops.where(
        ops.broadcast_to(on_it, value.shape),
        ops.broadcast_to(ops.unsqueeze(spread, -1), value.shape),
        value,
    )
    return permuted(result, [order.index(i) for i in range(self.rank)])
