"""Gradients of distances between rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def cdist_backward(grad_output: Tensor, x1: Tensor, x2: Tensor, p: float, cdist: Tensor) -> Tensor:
    """The gradient of ``x1``, ``[*batch, n, width]`` (``aten::_cdist_backward``).

    Args:
        grad_output: ``[*batch, n, m]``, as ``cdist``.
        x1: ``[..., n, width]``, whose leading dims broadcast to the batch.
        x2: ``[..., m, width]``, likewise.
    """
    difference = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    steps = _steps(difference, grad_output.unsqueeze(-1), p, cdist.unsqueeze(-1))
    return steps.sum(-2)


def pdist_backward(grad_output: Tensor, self: Tensor, p: float, pdist: Tensor) -> Tensor:
    """The gradient of ``self``, ``[n, width]`` (``aten::_pdist_backward``).

    Args:
        grad_output: ``[n * (n - 1) / 2]``, as ``pdist``: the pairs ``i < j``, row by row.
    """
    n = self.shape[0]
    rows, columns = torch.triu_indices(n, n, 1, device=self.device)

    def both(pairs: Tensor) -> Tensor:
        upper = pairs.new_zeros(n, n).index_put((rows, columns), pairs)
        return upper + upper.mT

    return cdist_backward(both(grad_output), self, self, p, both(pdist))


def _steps(difference: Tensor, grad: Tensor, p: float, distance: Tensor) -> Tensor:
    """What each difference of coordinates adds; 0 where the distance is."""
    zero = torch.zeros_like(difference)
    if p == 0:
        return zero
    if p == 1:
        return grad * difference.sign()
    if math.isinf(p):
        return torch.where(difference.abs() == distance, grad * difference.sign(), zero)
    if p == 2:
        return torch.where(distance == 0, zero, grad * difference / distance)
    size = difference.abs()
    slope = difference.sign() * (size / distance) ** (p - 1)
    still = (distance == 0) | (size == 0) if p < 1 else distance == 0
    return torch.where(still, zero, grad * slope)
