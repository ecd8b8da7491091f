"""torch tensors as MAX buffers and back, without copies and without waiting: who runs a model on a
device orders the streams of both (``streams.py``)."""

from __future__ import annotations

from typing import Any

import torch
from max.driver import Buffer

from torch_max_backend.compat.tensors import from_dlpack, to_dlpack
from torch_max_backend.runtime.tensors import plain as plain

_from_protocol = Buffer._from_dlpack


class _Exported:
    """The DLPack protocol of a tensor at a quarter of the cost of ``Tensor.__dlpack__`` (a tenth on
    a GPU, whose streams that orders), and without its refusal of tensors that require grad (nothing
    differentiates through MAX)."""

    __slots__ = ("device", "tensor")

    def __init__(self, tensor: torch.Tensor, device: tuple[int, int]) -> None:
        self.tensor = tensor
        self.device = device

    def __dlpack__(self, **_: Any) -> Any:
        return to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


# DLPack's numbers of kinds of devices.
_CPU = (1, 0)
_GPU = 10 if torch.version.hip else 2


def to_buffer(tensor: torch.Tensor) -> Buffer:
    """A buffer over the tensor's memory. The tensor must be contiguous, without neg/conj bits."""
    device = tensor.device
    place = _CPU if device.type == "cpu" else (_GPU, device.index)
    return _from_protocol(_Exported(tensor, place))


def to_tensor(buffer: Buffer) -> torch.Tensor:
    """A tensor over the buffer's memory, which lives as long as the tensor."""
    return from_dlpack(buffer.__dlpack__())
