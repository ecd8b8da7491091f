"""The layer of ``nn.TransformerEncoder``, which torch has as one operator for inference."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten

# What a mask is of: pairs of positions, positions of a sequence, or pairs of each head.
_PAIRS, _POSITIONS = 0, 1


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """_transformer_encoder_layer_fwd(Tensor src, int embed_dim, int num_heads, ...) -> Tensor"""

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, [embed_dim], weight, bias, eps)

    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    query, key, value = (
        part.unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for part in F.linear(x, qkv_weight, qkv_bias).chunk(3, -1)
    )
    found = _attention(query, key, value, mask, mask_type)
    x = src + F.linear(found.transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not norm_first:
        x = norm(x, norm_weight_1, norm_bias_1)
    y = norm(x, norm_weight_2, norm_bias_2) if norm_first else x
    y = F.linear(y, ffn_weight_1, ffn_bias_1)
    x = x + F.linear(F.gelu(y) if use_gelu else F.relu(y), ffn_weight_2, ffn_bias_2)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


def _attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, mask_type: int | None
) -> Tensor:
    """Of ``[batch, heads, length, width]``; what is true in ``mask``, or is not 0, is left out.
    Where nothing is left, the result is NaN as in eager, which fused attention would not give."""
    if mask is None:
        return F.scaled_dot_product_attention(query, key, value)
    hidden = mask.to(torch.bool)
    if mask_type == _PAIRS:
        hidden = hidden.reshape(1, 1, *mask.shape[-2:])
    elif mask_type == _POSITIONS:
        hidden = hidden.reshape(mask.shape[0], 1, 1, mask.shape[1])
    scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ value


DECOMPOSITIONS = {aten._transformer_encoder_layer_fwd.default: encoder_layer}
