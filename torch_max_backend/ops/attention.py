"""Scaled dot product attention."""

from __future__ import annotations

import math

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.convert.registry import Refusal, map_to
from torch_max_backend.ops.common.bank import nothing, number, permuted, routine, unpermuted
from torch_max_backend.ops.common.positions import iota
from torch_max_backend.ops.common.promotion import constant, full
from torch_max_backend.ops.common.reduce import count, greatest, is_empty
from torch_max_backend.ops.matmul import product
from torch_max_backend.ops.softmax import softmax_rows

aten = torch.ops.aten


def _without_dropout(dropout_p: float) -> Refusal | None:
    return Refusal("dropout inside attention is not converted") if dropout_p > 0 else None


@map_to(
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    supports=_without_dropout,
    bank=True,
    kernels="base",
)
def flash_attention_for_cpu(
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: TensorValue | None = None,
    scale: float | None = None,
) -> tuple[TensorValue, TensorValue | None]:
    """_scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value,
    float dropout_p=0.0, bool is_causal=False, *, Tensor? attn_mask=None, float? scale=None)
    -> (Tensor output, Tensor logsumexp)"""
    if is_empty([*query.shape, *key.shape, *value.shape]):
        nothing = full(-math.inf, DType.float32, expected(1).shape, query.device)
        return full(0, query.dtype, expected(0).shape, query.device), nothing
    addresses = routine(query.dtype, query.device)
    if addresses is not None and (attn_mask is None or attn_mask.rank in (2, 4)):
        return _blockwise(query, key, value, is_causal, attn_mask, scale, addresses)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    # Only a mask can forbid a query every key; torch gives zeros then.
    weights = softmax_rows(scores, -1, blind=attn_mask is not None)
    grouped = _grouped(weights, key.shape[1])
    result = ops.reshape(product(grouped, value), expected(0).shape)
    return result, _log_sum_exp(scores) if is_used(1) else None


def _blockwise(
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    is_causal: bool,
    mask: TensorValue | None,
    scale: float | None,
    addresses: list[TensorValue],
) -> tuple[TensorValue, TensorValue]:
    """The kernel that never holds all scores at once, ``mojo_kernels/attention.mojo``."""
    dtype, device = query.dtype, query.device
    batch, heads, length, _ = query.shape
    if mask is None:
        forbidden = nothing(dtype, 4)
    else:
        forbidden = _additive(mask, dtype)
        if mask.rank == 2:
            forbidden = ops.reshape(forbidden, [1, 1, *mask.shape])
    plain = [unpermuted(v, [0, 2, 1, 3]) for v in (query, key, value)]
    operands = [
        v if source is None else source
        for v, source in zip((query, key, value), plain, strict=True)
    ]
    results = ops.custom(
        "tmb_attention",
        device,
        [
            *operands,
            forbidden,
            *addresses,
            *(number(source is not None) for source in plain),
            number(mask is not None),
            number(is_causal),
            number(scale is not None),
            ops.constant(scale or 0, DType.float64, DeviceRef.CPU()),
        ],
        [
            TensorType(dtype, [batch, length, heads, value.shape[3]], device),
            TensorType(dtype, [batch, heads, length], device),
        ],
    )
    sums = ops.cast(results[1].tensor, expected(1).dtype)
    return permuted(results[0].tensor, [0, 2, 1, 3]), ops.reshape(sums, expected(1).shape)


def _additive(mask: TensorValue, dtype: DType) -> TensorValue:
    if mask.dtype != DType.bool:
        return ops.cast(mask, dtype)
    zero, lowest = (constant(v, dtype, mask.device) for v in (0, -math.inf))
    return ops.where(mask, zero, lowest)


def _scores(
    query: TensorValue,
    key: TensorValue,
    is_causal: bool,
    mask: TensorValue | None,
    scale: float | None,
) -> TensorValue:
    """The masked, scaled products of queries and keys: ``[batch, heads, queries, keys]``."""
    batch, heads, length, width = query.shape
    scores = product(_grouped(query, key.shape[1]), ops.transpose(key, -1, -2))
    scores = ops.reshape(scores, [batch, heads, length, key.shape[2]])
    if scale is None:
        factor = ops.rsqrt(count([width], scores.dtype, scores.device))
    else:
        factor = constant(scale, scores.dtype, scores.device)
    scores = scores * factor
    if mask is not None and mask.dtype != DType.bool:
        scores = scores + ops.cast(mask, scores.dtype)
    elif mask is not None:
        scores = _masked(scores, mask)
    if is_causal:
        scores = _masked(scores, _causal(length, key.shape[2], scores))
    return scores


def _masked(scores: TensorValue, allowed: TensorValue) -> TensorValue:
    lowest = constant(-math.inf, scores.dtype, scores.device)
    return ops.where(ops.broadcast_to(allowed, scores.shape), scores, lowest)


def _causal(queries: int | Dim, keys: int | Dim, like: TensorValue) -> TensorValue:
    rows, columns = (iota(n, like.device) for n in (queries, keys))
    return ops.greater_equal(ops.unsqueeze(rows, -1), columns)


def _grouped(queries: TensorValue, key_heads: int | Dim) -> TensorValue:
    """Queries of the heads that share a key head in one matrix, so that no key is repeated."""
    batch, heads, length, width = queries.shape
    if heads == key_heads:
        return queries
    return ops.reshape(queries, [batch, key_heads, heads * length // key_heads, width])


def _log_sum_exp(scores: TensorValue) -> TensorValue:
    """``[batch, heads, queries]``; 0 for a query that sees no key, as in torch."""
    most = greatest(scores, -1)
    result = most + ops.log(ops.sum(ops.exp(scores - most), -1))
    zero, lowest = (constant(v, scores.dtype, scores.device) for v in (0, -math.inf))
    result = ops.where(ops.equal(most, lowest), zero, result)
    return ops.reshape(result, expected(1).shape)
