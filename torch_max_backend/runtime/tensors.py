"""Tensors as kernels take them."""

from __future__ import annotations

import torch


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with contiguous memory that holds its values (a copy only where it is not)."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    return tensor if tensor.is_contiguous() else tensor.contiguous()
