"""Gradients element by element."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def softshrink_backward(grad_output: Tensor, self: Tensor, lambd: float) -> Tensor:
    """``aten::softshrink_backward``."""
    return torch.where((self >= -lambd) & (self <= lambd), 0.0, grad_output)


def masked_scatter_backward(grad_output: Tensor, mask: Tensor, sizes: Sequence[int]) -> Tensor:
    """The gradient of the source, of shape ``sizes``, whose first elements the mask took
    (``aten::masked_scatter_backward``)."""
    count = math.prod(sizes)
    chosen = mask.expand_as(grad_output).reshape(-1)
    # What the mask leaves goes behind the end.
    places = torch.where(chosen, chosen.to(torch.int64).cumsum(0) - 1, count)
    result = grad_output.new_zeros(count + 1).scatter(0, places, grad_output.reshape(-1))
    return result[:count].reshape(sizes)


def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """The gradients of ``v`` and ``g`` in ``w = v * g / norm(v)``, the norm over all dims but
    ``dim`` (``aten::_weight_norm_interface_backward``)."""
    others = [i for i in range(saved_v.dim()) if i != dim % saved_v.dim()]
    norms = saved_norms.reshape(saved_g.shape)
    along = (grad_w * saved_v).sum(others, keepdim=True) / norms
    of_v = saved_g / norms * (grad_w - saved_v * (along / norms))
    return of_v.to(saved_v.dtype), along.reshape(saved_g.shape).to(saved_g.dtype)
