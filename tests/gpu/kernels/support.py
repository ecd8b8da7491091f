"""What the graphs around kernels share."""

from __future__ import annotations

from max.dtype import DType
from max.graph import DeviceRef, TensorValue, ops


def numbers(*values: int | float) -> list[TensorValue]:
    """Settings as kernels take them: 0-d on the CPU, int64 or float64."""
    kinds = [DType.float64 if isinstance(v, float) else DType.int64 for v in values]
    return [ops.constant(v, k, DeviceRef.CPU()) for v, k in zip(values, kinds, strict=True)]
