"""Indexing with tensors (``x[i]``, ``x[:, i, j]``, ``x[i] = y``).

An index out of range never touches memory outside the tensor: on CPU it raises when the model
runs, as in eager; on a GPU it is clamped into range.
"""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.graph.shapes import hint
from torch_max_backend.max_dtypes import SIXTEEN_BIT_FLOATS
from torch_max_backend.ops.common.combining import combine, combine_rows
from torch_max_backend.ops.common.data_sizes import fresh_size, on_cpu, taken_where, true_at
from torch_max_backend.ops.common.positions import (
    Size,
    along,
    broadcast_shape,
    checked,
    iota,
    is_zero,
    moved_to_front,
    product,
    spread,
    static,
    take_rows,
)
from torch_max_backend.ops.common.promotion import full, is_zeros, to_dtype
from torch_max_backend.ops.gather_scatter import LIBRARIES, strides, times
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


_MASKS = (DType.bool, DType.uint8)


def _masks_on_cpu(self: torch.Tensor, indices: list[torch.Tensor | None]) -> Refusal | None:
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return on_cpu(self)
    return None


def _flat_masks(
    self: TensorValue, indices: list[TensorValue | None]
) -> tuple[TensorValue, list[TensorValue | None]]:
    """The tensor with the dims of each mask merged, and masks of one dim."""
    shape: list[Size] = []
    found: list[TensorValue | None] = []
    at = 0
    for index in indices:
        count = 1
        if index is not None and index.dtype in _MASKS:
            count = index.rank
            index = to_dtype(ops.reshape(index, [product(index.shape)]), DType.bool)
        shape.append(product(self.shape[at : at + count]))
        found.append(index)
        at += count
    return ops.reshape(self, [*shape, *self.shape[at:]]), found


def _unmasked(indices: list[TensorValue | None], size: Size | None) -> list[TensorValue | None]:
    """The indices with the places that a mask of one dim picks instead of the mask.

    Args:
        indices: As torch takes them.
        size: How many elements the masks pick, as far as torch tells.
    """
    found: list[TensorValue | None] = []
    for index in indices:
        if index is not None and index.dtype in _MASKS:
            assert size is not None
            index = ops.reshape(true_at(index, size), [size])
        found.append(index)
    return found


@map_to(
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    supports=_masks_on_cpu,
    native16=True,
    kernels="base",
    sizes_from_data=True,
)
def index(self: TensorValue, indices: list[TensorValue | None]) -> TensorValue:
    """index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"""
    if any(is_zero(s) for s in expected().shape):
        return full(0, self.dtype, expected().shape, self.device)
    picked = _picked(indices)
    self, indices = _flat_masks(self, indices)
    dims = [i for i, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if len(dims) == 1 and picked is not None:
        at = dims[0]
        outer, inner = product(self.shape[:at]), product(self.shape[at + 1 :])
        slices = ops.reshape(self, [outer, self.shape[at], inner])
        return ops.reshape(taken_where(slices, given[0], picked), expected().shape)
    indices = _unmasked(indices, picked)
    given = [index for index in indices if index is not None]
    if len(dims) == 1:
        return take_rows(self, given[0], dims[0], wrap=True)
    sizes = [self.shape[d] for d in dims]
    positions = joint_positions(given, sizes, strides(sizes))
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    value = self if adjacent else moved_to_front(self, dims)
    at = dims[0] if adjacent else 0
    shape = list(value.shape)
    merged = [*shape[:at], product(shape[at : at + len(dims)]), *shape[at + len(dims) :]]
    return take_rows(ops.reshape(value, merged), positions, at, wrap=True)


def _picked(indices: list[TensorValue | None]) -> Size | None:
    """The size of the dim of the result that counts what masks pick."""
    given = [index for index in indices if index is not None]
    places = [i for i, index in enumerate(indices) if index is not None]
    if not any(index.dtype in _MASKS for index in given):
        return None
    # Beside masks, other indices have one dim or none, or are broadcast with it.
    adjacent = places == list(range(places[0], places[-1] + 1))
    rank = max(1 if index.dtype in _MASKS else index.rank for index in given)
    return expected().shape[(places[0] if adjacent else 0) + rank - 1]


def _assignable(
    self: torch.Tensor,
    indices: list[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> Refusal | None:
    given = [i for i in indices if i is not None]
    if not any(i.dtype in (torch.bool, torch.uint8) for i in given):
        return None
    if len(given) == 1:
        chosen = _mask_axis(self.dim(), indices.index(given[0]), given[0].dim(), values.dim())
        if chosen is None or hint(values.shape[chosen]) == 1:
            return None
    return on_cpu(self)


def _mask_axis(rank: int, dim: int, mask_rank: int, values_rank: int) -> int | None:
    """The dim of the assigned values that counts the mask's true elements, if they have it."""
    behind = rank - dim - mask_rank
    return values_rank - behind - 1 if values_rank > behind else None


@map_to(
    aten.index_put.default,
    aten._unsafe_index_put.default,
    supports=_assignable,
    native16=True,
    kernels=LIBRARIES,
)
def index_put(
    self: TensorValue,
    indices: list[TensorValue | None],
    values: TensorValue,
    accumulate: bool = False,
) -> TensorValue:
    """index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor"""
    if accumulate and self.dtype in SIXTEEN_BIT_FLOATS and self.device.is_cpu():
        # Sums are rounded once.
        wide = [ops.cast(v, DType.float32) for v in (self, values)]
        return ops.cast(index_put(wide[0], indices, wide[1], True), self.dtype)
    dims = [i for i, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(is_zero(s) for s in self.shape):
        return self
    whole, zeros = self.shape, is_zeros(self)
    if any(index.dtype in _MASKS for index in given):
        mask = given[0]
        chosen = _mask_axis(self.rank, dims[0], mask.rank, values.rank)
        single = chosen is None or static(values.shape[chosen]) == 1
        if len(given) == 1 and single:
            return _masked(self, to_dtype(mask, DType.bool), dims[0], values, accumulate)
        alone = len(given) == 1 and chosen is not None
        size = values.shape[chosen] if alone else fresh_size()
        self, indices = _flat_masks(self, indices)
        indices = _unmasked(indices, size)
        dims = [i for i, index in enumerate(indices) if index is not None]
        given = [index for index in indices if index is not None]
    chosen_shape = broadcast_shape(*[index.shape for index in given])
    if any(is_zero(s) for s in chosen_shape):
        return self
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    at = dims[0] if adjacent else 0
    sizes = list(self.shape)
    indexed = [sizes[d] for d in dims]
    rest = [d for d in range(self.rank) if d not in dims]
    shape = [*(sizes[d] for d in rest[:at]), *chosen_shape, *(sizes[d] for d in rest[at:])]
    values = spread(values, shape)
    if self.device.is_cpu():
        front = self if adjacent else moved_to_front(self, dims)
        written = _rows_put(front, at, given, values, accumulate, zeros)
        if adjacent:
            return ops.reshape(written, whole)
        order = [*dims, *rest]
        turned = ops.permute(written, [order.index(d) for d in range(self.rank)])
        return ops.reshape(turned, whole)
    steps = strides(sizes)
    places = joint_positions(given, indexed, [steps[d] for d in dims])
    places = ops.reshape(places, [1] * at + chosen_shape + [1] * (len(rest) - at))
    for i, d in enumerate(rest):
        offsets = times(iota(sizes[d], self.device), steps[d])
        places = places + along(offsets, i if i < at else i + len(chosen_shape), len(shape))
    return combine(self, places, values, "sum" if accumulate else "write")


def _rows_put(
    self: TensorValue,
    at: int,
    given: list[TensorValue],
    values: TensorValue,
    accumulate: bool,
    zeros: bool,
) -> TensorValue:
    """A tensor with values put where indices of neighbouring dims say, from dim ``at`` on.

    Args:
        self: The tensor.
        at: The first dim.
        given: An index for each of the dims, as far as they go.
        values: ``[*dims before, *indices, *dims behind]``.
        accumulate: Whether values are added to what is there.
        zeros: Whether the tensor is of zeros.
    """
    indexed = list(self.shape[at : at + len(given)])
    outer, inner = product(self.shape[:at]), product(self.shape[at + len(given) :])
    count = product(broadcast_shape(*[index.shape for index in given]))
    # One index is checked by the kernel.
    places = given[0] if len(given) == 1 else joint_positions(given, indexed, strides(indexed))
    whole = [outer, product(indexed), inner]
    rows = combine_rows(
        None if zeros else ops.reshape(self, whole),
        ops.reshape(places, [count]),
        ops.reshape(values, [outer, count, inner]),
        "sum" if accumulate else "write",
        wrap=True,
        shape=whole if zeros else None,
    )
    return ops.reshape(rows, self.shape)


def _masked(
    self: TensorValue, mask: TensorValue, dim: int, values: TensorValue, accumulate: bool
) -> TensorValue:
    """Assignment of one value (or one row of values) where a mask is true."""
    behind = self.rank - dim - mask.rank
    chosen = _mask_axis(self.rank, dim, mask.rank, values.rank)
    sizes = list(values.shape)
    if chosen is not None:
        # The dim that counts true elements gives way to those of the mask.
        sizes = [*sizes[:chosen], *[1] * mask.rank, *sizes[chosen + 1 :]]
    values = spread(ops.reshape(values, sizes), self.shape)
    mask = spread(ops.reshape(mask, [*mask.shape, *[1] * behind]), self.shape)
    if accumulate and self.dtype == DType.bool:
        values = ops.logical_or(self, values)
    elif accumulate:
        values = self + values
    return ops.where(mask, values, self)


def joint_positions(
    indices: list[TensorValue], sizes: list[Size], steps: list[Size]
) -> TensorValue:
    """The sum of index tensors, broadcast together, each into a dim of its size and times its
    stride."""
    shape = broadcast_shape(*[index.shape for index in indices])
    position: TensorValue | None = None
    for index, size, step in zip(indices, sizes, steps, strict=True):
        part = times(checked(index, size, wrap=True), step)
        position = part if position is None else position + part
    assert position is not None
    return spread(position, shape)
