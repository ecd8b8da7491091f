"""Kernels that raise for values that are wrong, and have no result."""

from __future__ import annotations

from max.dtype import DType
from max.graph import BufferType, DeviceRef, TensorValue, ops


def raise_by(
    kernel: str, checked: TensorValue, *more: TensorValue, **parameters: bool | str
) -> None:
    """Let the model call a kernel that raises when it runs.

    Args:
        kernel: It takes a buffer that it leaves alone, then these values.
        checked: The values that may be wrong, ``[n]``, of any device: only the CPU raises.
        more: Further values, on the CPU.
        parameters: The kernel's.
    """
    cpu = DeviceRef.CPU()
    near = checked if checked.device.is_cpu() else ops.transfer_to(checked, cpu)
    # In place, so that MAX keeps a kernel whose result nobody uses.
    kept = ops.buffer_create(BufferType(DType.int32, [1], cpu))
    ops.inplace_custom(kernel, cpu, [kept, near, *more], parameters=dict(parameters))
