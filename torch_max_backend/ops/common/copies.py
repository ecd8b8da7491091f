"""Copies by strides, on CPU by a kernel of the library "base"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.ops.common.positions import Size, static


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
    numbers = [static(n) for n in (*strides, offset)]
    if None in numbers:
        layout = ops.shape_to_tensor([Dim(n) for n in (*strides, offset)])
    else:
        layout = ops.constant(np.array(numbers, np.int64), DType.int64, DeviceRef.CPU())
    out = TensorType(flat.dtype, shape, flat.device)
    return ops.custom("tmb_strided", flat.device, [flat, layout], [out])[0].tensor
