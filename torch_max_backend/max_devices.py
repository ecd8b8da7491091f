"""torch devices and MAX devices."""

from __future__ import annotations

import torch
from max.graph import DeviceRef

from torch_max_backend.errors import UnsupportedDeviceError


def device_ref(device: torch.device) -> DeviceRef:
    """The MAX device of a torch device ("cpu", "cuda", "cuda:1"; ROCm is "cuda" in torch).

    Raises:
        UnsupportedDeviceError: The device type is neither.
    """
    if device.type == "cpu":
        return DeviceRef.CPU()
    if device.type == "cuda":
        return DeviceRef.GPU(device.index or 0)
    raise UnsupportedDeviceError(
        f"The max backend runs tensors on 'cpu' and 'cuda' (NVIDIA, AMD), not on {str(device)!r}.",
        "Move the model and its inputs with .to('cpu') or .to('cuda').",
    )
