"""Images of one to three spatial dimensions, channels first, with or without a batch."""

from __future__ import annotations

from collections.abc import Sequence

from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorValue, ops

Sizes = Sequence[int | Dim]


def three(values: Sequence[int], fill: int) -> list[int]:
    """Settings of one to three dimensions for three."""
    return [*[fill] * (3 - len(values)), *values]


def lifted(shape: Sizes, spatial: int) -> list[int | Dim]:
    """``[batch, channels, depth, height, width]`` of a shape with 1 to 3 spatial dimensions."""
    lead = list(shape[: len(shape) - spatial])
    return [*[1] * (2 - len(lead)), *lead, *[1] * (3 - spatial), *shape[len(lead) :]]


def numbers(values: Sequence[int]) -> list[TensorValue]:
    """Arguments of a kernel that are no tensors."""
    return [ops.constant(v, DType.int64, DeviceRef.CPU()) for v in values]


def planar(value: TensorValue) -> TensorValue:
    """Images or weights with two spatial dimensions: for one a height of 1."""
    return ops.unsqueeze(value, 2) if value.rank == 3 else value


def planar_shape(shape: Sizes) -> list[int | Dim]:
    """The sizes of that."""
    return [*shape[:2], 1, *shape[2:]] if len(shape) == 3 else list(shape)


def planar_settings(
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    """Stride, padding and dilation of each of two spatial dimensions."""
    lead = 2 - len(stride)
    return [*[1] * lead, *stride, *[0] * lead, *padding, *[1] * lead, *dilation]
