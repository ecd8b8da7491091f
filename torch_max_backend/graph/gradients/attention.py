"""Gradients of attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def flash_attention_for_cpu_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """``aten::_scaled_dot_product_flash_attention_for_cpu_backward``, the probabilities computed
    again from what the forward pass kept of each row.

    Args:
        grad_out: ``[batch, heads, queries, width]``, as ``query`` and ``out``.
        key: ``[batch, key heads, keys, width]``, as ``value``; the key heads divide the heads.
        logsumexp: ``[batch, heads, queries]``, of the scaled and masked scores.
        attn_mask: Added to the scores.
        scale: Of the scores; by default ``1 / sqrt(width)``.

    Returns:
        The gradients of query, key and value.
    """
    dtype = torch.promote_types(query.dtype, torch.float32)
    q, k, v, o, grad = (t.to(dtype) for t in (query, key, value, out, grad_out))
    shared = q.shape[1] // k.shape[1]
    if shared > 1:
        k, v = (t.repeat_interleave(shared, 1) for t in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.mT * scale
    if attn_mask is not None:
        scores = scores + attn_mask
    probabilities = (scores - logsumexp.to(dtype).unsqueeze(-1)).exp()
    if is_causal:
        rows, columns = (torch.arange(n, device=q.device) for n in scores.shape[-2:])
        kept = rows.unsqueeze(1) >= columns
        probabilities = torch.where(kept, probabilities, 0.0)
    of_probabilities = grad @ v.mT
    center = (grad * o).sum(-1, keepdim=True)
    of_scores = probabilities * (of_probabilities - center) * scale
    of_key, of_value = of_scores.mT @ q, probabilities.mT @ grad
    if shared > 1:
        of_key, of_value = (t.unflatten(1, (-1, shared)).sum(2) for t in (of_key, of_value))
    results = zip((of_scores @ k, of_key, of_value), (query, key, value), strict=True)
    of_query, of_key, of_value = (new.to(old.dtype) for new, old in results)
    return of_query, of_key, of_value
