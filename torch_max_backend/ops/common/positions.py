"""Positions: ranges of a dimension, and indices that never leave their tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef, Dim, StaticDim, TensorValue, ops

from torch_max_backend.convert.context import current_node
from torch_max_backend.graph.shapes import hint
from torch_max_backend.ops.common.bank import number
from torch_max_backend.ops.common.promotion import constant, full

# Elements of a range to hold as a constant.
_LARGEST_IOTA = 1 << 16

Size: TypeAlias = int | Dim


def static(size: Size) -> int | None:
    """A size as ``int``, ``None`` if it is symbolic."""
    if isinstance(size, int):
        return size
    return int(size) if isinstance(size, StaticDim) else None


def is_zero(size: Size) -> bool:
    """Whether a size is zero for certain."""
    return static(size) == 0


def product(sizes: Sequence[Size]) -> Dim:
    """The number of elements of a shape."""
    return math.prod(sizes, start=Dim(1))


def is_negative(name: str, index: Size, position: int | None = None) -> bool:
    """Whether an index argument counts from the end.

    Of a symbolic one, torch knows the sign (it guarded on it while tracing); ``name`` is the
    argument that holds it.
    """
    known = static(index)
    if known is not None:
        return known < 0
    node = current_node().node
    names = [a.name for a in node.target._schema.arguments]
    given = node.kwargs.get(name)
    if given is None and names.index(name) < len(node.args):
        given = node.args[names.index(name)]
    if position is not None:
        given = given[position]
    value = getattr(given, "meta", {}).get("val")
    example = hint(value)
    return example is not None and example < 0


def scalar(size: Size) -> TensorValue:
    """A size as a 0-d int64 tensor on CPU."""
    known = static(size)
    if known is not None:
        return ops.constant(known, DType.int64, DeviceRef.CPU())
    return ops.reshape(ops.shape_to_tensor([size]), [])


def on_device(size: Size, device: DeviceRef) -> TensorValue:
    """A size as a 0-d int64 tensor on a device."""
    known = static(size)
    if known is not None:
        return ops.constant(known, DType.int64, device)
    return ops.transfer_to(scalar(size), device)


def iota(size: Size, device: DeviceRef, dtype: DType = DType.int64) -> TensorValue:
    """``0, 1, ..., size - 1``."""
    known = static(size)
    if known is not None and known <= _LARGEST_IOTA and device.is_cpu():
        # MAX would fold the range, in a compile of its own.
        return ops.constant(np.arange(known, dtype=dtype.to_numpy()), dtype, device)
    return ops.range(0, size, 1, out_dim=size, dtype=dtype, device=device)


def along(value: TensorValue, dim: int, rank: int) -> TensorValue:
    """A 1-d value laid along one dimension of a shape of ``rank`` dims, to broadcast."""
    return ops.reshape(value, [value.shape[0] if i == dim else 1 for i in range(rank)])


def window(value: TensorValue, dim: int, start: Size, size: Size, step: int = 1) -> TensorValue:
    """``size`` elements of a dimension from ``start``, which torch guarantees to exist."""
    if is_zero(size) or any(is_zero(s) for s in value.shape):
        shape = [size if i == dim else s for i, s in enumerate(value.shape)]
        return full(0, value.dtype, shape, value.device)
    if is_zero(start) and step == 1 and size == value.shape[dim]:
        return value
    first, count = static(start), static(size)
    a = first if first is not None else start
    n = count if count is not None else size
    stop = a + n if step == 1 else a + (n - 1) * step + 1
    index = [slice(None)] * value.rank
    index[dim] = slice(a, stop, step)
    return ops.slice_tensor(value, index)


def as_lines(value: TensorValue, dim: int) -> TensorValue:
    """The value as ``[outer, n, inner]``, the dimension ``dim`` (not negative) in the middle."""
    outer, inner = product(value.shape[:dim]), product(value.shape[dim + 1 :])
    return ops.reshape(value, [outer, value.shape[dim], inner])


def without(value: TensorValue, dim: int) -> TensorValue:
    """The value without a dimension of size 1."""
    return ops.reshape(value, [s for i, s in enumerate(value.shape) if i != dim])


def moved_to_front(value: TensorValue, dims: Sequence[int]) -> TensorValue:
    """The value with ``dims`` first, in that order, and the others behind."""
    order = [*dims, *(i for i in range(value.rank) if i not in dims)]
    return value if order == list(range(value.rank)) else ops.permute(value, order)


def broadcast_shape(*shapes: Sequence[Size]) -> list[Size]:
    """The shape that all given ones broadcast to. Symbolic sizes that torch found equal to another
    carry one name, so any size but 1 decides."""
    rank = max(len(s) for s in shapes)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, start=rank - len(shape)):
            if static(result[i]) == 1 or (static(size) not in (None, 1)):
                result[i] = size
    return result


def spread(value: TensorValue, shape: Sequence[Size]) -> TensorValue:
    """A value broadcast to a shape. A symbolic size of which torch has not proved that it is the
    shape's is checked when the model runs."""
    tail = list(shape)[len(shape) - value.rank :]
    named = [v if v in (s, 1) else s for v, s in zip(value.shape, tail, strict=True)]
    if any(v != s for v, s in zip(value.shape, named, strict=True)):
        value = ops.rebind(value, named)
    return value if list(value.shape) == list(shape) else ops.broadcast_to(value, list(shape))


def checked(index: TensorValue, size: Size, *, wrap: bool) -> TensorValue:
    """Indices into a dimension of ``size``, non-negative and in range, as int64.

    On CPU an index out of range raises when the model runs. On a GPU nothing can raise; indices are
    clamped, so that memory outside the tensor is never touched.

    Args:
        wrap: Negative indices count from the end; otherwise they are out of range.
    """
    index = index if index.dtype == DType.int64 else ops.cast(index, DType.int64)
    if index.device.is_cpu():
        count = product(index.shape)
        flat = ops.reshape(index, [count])
        found = ops.custom(
            "tmb_checked", index.device, [flat, scalar(size), number(wrap)], [flat.type]
        )
        return ops.reshape(found[0].tensor, index.shape)
    last = on_device(size, index.device) - 1
    zero = constant(0, DType.int64, index.device)
    if wrap:
        index = ops.where(ops.greater(zero, index), index + (last + 1), index)
    return ops.max(ops.min(index, last), zero)


def non_negative(index: TensorValue) -> TensorValue:
    """Indices whose negative values are out of range in every tensor, for ``ops.gather``, which
    would count them from the end."""
    limit = constant(2**31 - 1 if index.dtype == DType.int32 else 2**62, index.dtype, index.device)
    zero = constant(0, index.dtype, index.device)
    return ops.where(ops.greater(zero, index), limit, index)


def take_rows(value: TensorValue, index: TensorValue, dim: int, *, wrap: bool) -> TensorValue:
    """``ops.gather`` whose indices are checked as ``checked`` does (in the gather itself on CPU).

    The index's dims replace ``dim``.
    """
    if any(is_zero(s) for s in index.shape):
        shape = [*value.shape[:dim], *index.shape, *value.shape[dim + 1 :]]
        return full(0, value.dtype, shape, value.device)
    if index.dtype not in (DType.int32, DType.int64):
        index = ops.cast(index, DType.int64)
    if not value.device.is_cpu():
        return _gathered(value, checked(index, value.shape[dim], wrap=wrap), dim)
    return _gathered(value, index if wrap else non_negative(index), dim)


def _gathered(value: TensorValue, index: TensorValue, dim: int) -> TensorValue:
    if index.rank:
        return ops.gather(value, index, dim)
    return without(ops.gather(value, ops.reshape(index, [1]), dim), dim)
