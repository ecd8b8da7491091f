"""Gradients of what rearranges images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def replication_pad_backward(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    """``aten::replication_pad{1,2,3}d_backward``: each element gathers what its copies got.

    Args:
        self: ``[..., *spatial]``.
        padding: Before and after, the last dimension first.
    """
    result = grad_output
    for i in range(len(padding) // 2):
        dim = self.dim() - 1 - i
        size = self.shape[dim]
        places = torch.arange(result.shape[dim], device=self.device) - padding[2 * i]
        shape = [*result.shape[:dim], size, *result.shape[dim + 1 :]]
        result = result.new_zeros(shape).index_add(dim, places.clamp(0, size - 1), result)
    return result
