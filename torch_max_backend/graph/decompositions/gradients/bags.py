"""Gradients of ``embedding_bag``.

``indices`` and ``offset2bag`` are ``[n]``, ``offsets`` and ``bag_size`` ``[bags]``, ``grad`` is
``[bags, width]``. Mode 0 sums a bag, 1 is its mean, 2 its maximum.
"""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten


def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of the weight, dense (``aten::_embedding_bag_backward``)."""
    if sparse:
        return NotImplemented
    settings = (num_weights, scale_grad_by_freq, mode, per_sample_weights, padding_idx)
    bags = _bags(indices, offsets)
    return embedding_bag_dense_backward(grad, indices, bags, bag_size, maximum_indices, *settings)


def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Tensor | None,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of the weight (``aten::_embedding_bag_dense_backward``)."""
    result = grad.new_zeros(num_weights, grad.shape[1])
    if mode == 2:
        filled = torch.where(bag_size.unsqueeze(1) > 0, grad, 0.0)
        # Bags without elements name no row.
        return result.scatter_add(0, maximum_indices.clamp(min=0), filled)
    rows = grad.index_select(0, offset2bag)
    if mode == 1:
        rows = rows / bag_size.index_select(0, offset2bag).unsqueeze(1)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    if scale_grad_by_freq:
        ones = torch.ones_like(indices)
        often = ones.new_zeros(num_weights).index_add(0, indices, ones)
        rows = rows / often.index_select(0, indices).unsqueeze(1)
    if padding_idx >= 0:
        rows = torch.where((indices == padding_idx).unsqueeze(1), 0.0, rows)
    return result.index_add(0, indices, rows)


def per_sample_weights_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    offset2bag: Tensor,
    mode: int,
    padding_idx: int = -1,
) -> Tensor:
    """The gradient of ``per_sample_weights``, ``[n]``
    (``aten::_embedding_bag_per_sample_weights_backward``)."""
    bags = _bags(indices, offsets)
    result = (grad.index_select(0, bags) * weight.index_select(0, indices)).sum(1)
    return torch.where(indices == padding_idx, 0.0, result) if padding_idx >= 0 else result


def _bags(indices: Tensor, offsets: Tensor) -> Tensor:
    """The bag of each index."""
    places = torch.arange(indices.shape[0], device=indices.device, dtype=offsets.dtype)
    return torch.searchsorted(offsets, places, right=True) - 1
