"""Copies by strides, on CPU by a kernel of the library "base"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.ops.common.bank import nothing
from torch_max_backend.ops.common.positions import Size, product, static

# The kernel is compiled for results of so many dims, or of more where there are: dims of one
# element stand before the others.
_RANK = 6


def strided_copy(
    flat: TensorValue, shape: Sequence[Size], strides: Sequence[Size], offset: Size
) -> TensorValue:
    """The elements of a tensor of one dimension that strides pick, in a result of any but 0
    dimensions; the run raises if one of them lies outside.

    Args:
        flat: On CPU.
        shape: Of the result.
        strides: Elements from one to the next along each dimension; static ones may be negative.
        offset: Of the first element.
    """
    more = max(0, _RANK - len(shape))
    out = TensorType(flat.dtype, [1] * more + [*shape], flat.device)
    layout = _numbers(*([0] * more), *strides, offset)
    found = ops.custom("tmb_strided", flat.device, [flat, layout], [out])[0].tensor
    return ops.reshape(found, [*shape])


def slice_scatter_copy(
    base: TensorValue | None,
    shape: Sequence[Size],
    part: TensorValue,
    dim: int,
    start: Size,
    step: Size,
) -> TensorValue:
    """``base`` with ``part`` at every ``step``-th position of a dimension; the run raises if one
    of them lies outside.

    Args:
        base: Of ``shape``, on CPU; ``None`` stands for zeros.
        shape: Of the result.
        part: Of that shape except along ``dim``, of the result's dtype, on CPU.
        dim: From 0 on.
        start: Of the first position, from 0 on.
        step: At least 1.
    """

    def flat(sizes: Sequence[Size]) -> list[Dim]:
        return [Dim(n) for n in (product(sizes[:dim]), sizes[dim], product(sizes[dim + 1 :]))]

    kept = nothing(part.dtype, 3) if base is None else ops.reshape(base, flat(base.shape))
    given = ops.reshape(part, flat(part.shape))
    out = TensorType(part.dtype, flat(shape), part.device)
    inputs = [kept, given, _numbers(start, step)]
    result = ops.custom("tmb_slice_scatter", part.device, inputs, [out])[0]
    return ops.reshape(result.tensor, list(shape))


def _numbers(*sizes: Size) -> TensorValue:
    """Sizes as a tensor for a kernel."""
    numbers = [static(n) for n in sizes]
    if None in numbers:
        return ops.shape_to_tensor([Dim(n) for n in sizes])
    return ops.constant(np.array(numbers, np.int64), DType.int64, DeviceRef.CPU())
