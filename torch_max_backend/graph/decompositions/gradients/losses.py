"""Gradients of losses."""

from __future__ import annotations

import torch
from torch import Tensor

_NONE, _MEAN = 0, 1


def multi_margin_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = _MEAN,
) -> Tensor:
    """``aten::multi_margin_loss_backward``: of ``max(0, margin - x[target] + x[j])**p`` for
    ``j`` that are not the target, ``p`` being 1 or 2.

    Args:
        self: ``[n, classes]`` or ``[classes]``.
        target: ``[n]`` or 0-d.
    """
    x, chosen = torch.atleast_2d(self), target.reshape(-1, 1)
    z = margin - x.gather(1, chosen) + x
    slope = (z > 0).to(x.dtype) if p == 1 else 2 * z.clamp(min=0)
    if weight is not None:
        slope = slope * weight.index_select(0, chosen.squeeze(1)).unsqueeze(1)
    slope = slope.scatter(1, chosen, 0.0)
    slope = slope.scatter(1, chosen, -slope.sum(1, keepdim=True)) / x.shape[1]
    return (slope * _spread(grad_output, reduction, x.shape[0])).reshape(self.shape)


def multilabel_margin_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """``aten::multilabel_margin_loss_backward``: of ``max(0, 1 - x[t] + x[j])`` for targets ``t``
    and others ``j``.

    Args:
        self: ``[n, classes]`` or ``[classes]``.
        target: As ``self``; the targets before the first negative one count.
        is_target: As ``self``, 1 for targets.
    """
    x, chosen, kind = (torch.atleast_2d(t) for t in (self, target, is_target))
    counted = (chosen < 0).to(torch.int64).cumsum(1) == 0
    places = torch.where(counted, chosen, 0)
    z = 1 - x.gather(1, places).unsqueeze(2) + x.unsqueeze(1)
    wrong = (z > 0) & counted.unsqueeze(2) & (kind == 0).unsqueeze(1)
    share = wrong.to(x.dtype) / x.shape[1]
    slope = share.sum(1).scatter_add(1, places, -share.sum(2))
    return (slope * _spread(grad_output, reduction, x.shape[0])).reshape(self.shape)


def _spread(grad: Tensor, reduction: int, count: int) -> Tensor:
    """The gradient for each row, as a column."""
    return grad.reshape(-1, 1) / (count if reduction == _MEAN else 1)
