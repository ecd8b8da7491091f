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
