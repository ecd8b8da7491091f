"""torch tensors as MAX buffers and back, without copies."""

from __future__ import annotations

from typing import Any

import torch
from max.driver import Buffer

from torch_max_backend.compat.tensors import to_dlpack
from torch_max_backend.runtime.tensors import plain as plain

_from_protocol = Buffer._from_dlpack


class _Exported:
    """The DLPack protocol of a tensor at a quarter of the cost of ``Tensor.__dlpack__``, and
    without its refusal of tensors that require grad (nothing differentiates through MAX)."""

    __slots__ = ("device", "tensor")

    def __init__(self, tensor: torch.Tensor, device: tuple[int, int]) -> None:
        self.tensor = tensor
        self.device = device

    def __dlpack__(self, **_: Any) -> Any:
        return to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


_CPU = (1, 0)


def to_buffer(tensor: torch.Tensor) -> Buffer:
    """A buffer over the tensor's memory. The tensor must be contiguous, without neg/conj bits."""
    if tensor.device.type == "cpu":
        return _from_protocol(_Exported(tensor, _CPU))
    return Buffer.from_dlpack(tensor.detach())


def to_tensor(buffer: Buffer) -> torch.Tensor:
    """A tensor over the buffer's memory, which lives as long as the tensor."""
    return torch.from_dlpack(buffer)
