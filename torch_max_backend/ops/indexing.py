"""Indexing with tensors (``x[i]``, ``x[:, i, j]``, ``x[i] = y``).

An index out of range never touches memory outside the tensor: on CPU it raises when the model
runs, as in eager; on a GPU it is clamped into range.
"""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.convert.registry import Refusal, map_to
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
    take_rows,
)
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.gather_scatter import combine, strides, times

aten = torch.ops.aten


def _no_masks(self: torch.Tensor, indices: list[torch.Tensor | None]) -> Refusal | None:
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return Refusal("a mask as index makes the result's size depend on data")
    return None


@map_to(
    aten.index.Tensor, aten._unsafe_index.Tensor, supports=_no_masks, native16=True, kernels="base"
)
def index(self: TensorValue, indices: list[TensorValue | None]) -> TensorValue:
    """index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"""
    dims = [i for i, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(is_zero(s) for s in expected().shape):
        return full(0, self.dtype, expected().shape, self.device)
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


def _assignable(
    self: torch.Tensor,
    indices: list[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> Refusal | None:
    given = [i for i in indices if i is not None]
    if not any(i.dtype in (torch.bool, torch.uint8) for i in given):
        return None
    if len(given) > 1:
        return Refusal("a mask beside other index tensors makes sizes depend on data")
    chosen = _mask_axis(self.dim(), indices.index(given[0]), given[0].dim(), values.dim())
    if chosen is not None and values.shape[chosen] != 1:
        return Refusal("how many values go to a mask depends on data; assign a single one")
    return None


def _mask_axis(rank: int, dim: int, mask_rank: int, values_rank: int) -> int | None:
    """The dim of the assigned values that counts the mask's true elements, if they have it."""
    behind = rank - dim - mask_rank
    return values_rank - behind - 1 if values_rank > behind else None


@map_to(
    aten.index_put.default, aten._unsafe_index_put.default, supports=_assignable, kernels="base"
)
def index_put(
    self: TensorValue,
    indices: list[TensorValue | None],
    values: TensorValue,
    accumulate: bool = False,
) -> TensorValue:
    """index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor"""
    dims = [i for i, index in enumerate(indices) if index is not None]
    given = [index for index in indices if index is not None]
    if any(is_zero(s) for s in self.shape):
        return self
    if given and given[0].dtype in (DType.bool, DType.uint8):
        return _masked(self, to_dtype(given[0], DType.bool), dims[0], values, accumulate)
    chosen = broadcast_shape(*[index.shape for index in given])
    if any(is_zero(s) for s in chosen):
        return self
    adjacent = dims == list(range(dims[0], dims[-1] + 1))
    at = dims[0] if adjacent else 0
    sizes = list(self.shape)
    indexed = [sizes[d] for d in dims]
    rest = [d for d in range(self.rank) if d not in dims]
    shape = [*(sizes[d] for d in rest[:at]), *chosen, *(sizes[d] for d in rest[at:])]
    values = spread(values, shape)
    if at == 0 and dims[-1] == len(dims) - 1 and not (accumulate and self.dtype == DType.bool):
        rows = ops.reshape(self, [product(indexed), *sizes[len(dims) :]])
        count = product(chosen)
        places = ops.reshape(joint_positions(given, indexed, strides(indexed)), [count, 1])
        write = ops.scatter_nd_add if accumulate else ops.scatter_nd
        written = write(rows, ops.reshape(values, [count, *sizes[len(dims) :]]), places)
        return ops.reshape(written, sizes)
    steps = strides(sizes)
    places = joint_positions(given, indexed, [steps[d] for d in dims])
    places = ops.reshape(places, [1] * at + chosen + [1] * (len(rest) - at))
    for i, d in enumerate(rest):
        offsets = times(iota(sizes[d], self.device), steps[d])
        places = places + along(offsets, i if i < at else i + len(chosen), len(shape))
    return combine(self, places, values, "sum" if accumulate else "write")


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
