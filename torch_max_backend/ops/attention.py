"""Scaled dot product attention."""

from __future__ import annotations

import math

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, StaticDim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import current_node, expected, is_used
from torch_max_backend.ops.common.bank import nothing, number, permuted, routine, unpermuted
from torch_max_backend.ops.common.numerics import exp
from torch_max_backend.ops.common.positions import iota
from torch_max_backend.ops.common.promotion import computing_dtype, constant, full
from torch_max_backend.ops.common.reduce import count, greatest, is_empty
from torch_max_backend.ops.matmul import product
from torch_max_backend.ops.softmax import softmax_rows
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten
# Queries that are so few that reading the keys takes all the time.
_FEW = 8


def _without_dropout(dropout_p: float) -> Refusal | None:
    return Refusal("dropout inside attention is not converted") if dropout_p > 0 else None


@map_to(
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    supports=_without_dropout,
    bank=True,
    kernels="base",
    native16=True,
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
    sums_in = computing_dtype(query.dtype, query.device)
    addresses = routine(sums_in, query.device)
    if attn_mask is not None and attn_mask.rank not in (2, 4):
        addresses = None
    # The kernel takes bfloat16 where products of it are faster, and from few queries.
    narrow = current_node().bfloat16 or _is_few(query.shape[2])
    if query.dtype != DType.bfloat16 or addresses is None or not narrow:
        query, key, value = (ops.cast(v, sums_in) for v in (query, key, value))
    if addresses is not None:
        return _blockwise(query, key, value, is_causal, attn_mask, scale, addresses)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    # Only a mask can forbid a query every key; torch gives zeros then.
    weights = softmax_rows(scores, -1, blind=attn_mask is not None)
    grouped = _grouped(weights, key.shape[1])
    result = ops.reshape(product(grouped, value), expected(0).shape)
    sums = _log_sum_exp(scores) if is_used(1) else None
    return ops.cast(result, expected(0).dtype), sums


def _is_few(queries: Dim) -> bool:
    return isinstance(queries, StaticDim) and int(queries) <= _FEW


def _blockwise(
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    is_causal: bool,
    mask: TensorValue | None,
    scale: float | None,
    addresses: list[TensorValue],
) -> tuple[TensorValue, TensorValue]:
    """The kernel that never holds all scores at once, ``mojo_kernels/attention/forward.mojo``."""
    dtype, device = computing_dtype(query.dtype, query.device), query.device
    batch, heads, length, _ = query.shape
    operands, swapped = _rows_anywhere(query, key, value)
    results = ops.custom(
        "tmb_attention",
        device,
        [
            *operands,
            _forbidden(mask, dtype),
            *addresses,
            *swapped,
            *_settings(is_causal, mask, scale),
        ],
        [
            TensorType(dtype, [batch, length, heads, value.shape[3]], device),
            TensorType(dtype, [batch, heads, length], device),
        ],
    )
    sums = ops.cast(results[1].tensor, expected(1).dtype)
    result = ops.cast(permuted(results[0].tensor, [0, 2, 1, 3]), expected(0).dtype)
    return result, ops.reshape(sums, expected(1).shape)


@map_to(
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    supports=_without_dropout,
    bank=True,
    kernels="base",
)
def flash_attention_for_cpu_backward(
    grad_out: TensorValue,
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    out: TensorValue,
    logsumexp: TensorValue,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: TensorValue | None = None,
    scale: float | None = None,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """_scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query,
    Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p, bool is_causal, *,
    Tensor? attn_mask=None, float? scale=None)
    -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)"""
    if is_empty([*query.shape, *key.shape, *value.shape]):
        of_query, of_key, of_value = (
            full(0, query.dtype, expected(i).shape, query.device) for i in range(3)
        )
        return of_query, of_key, of_value
    dtype, device = query.dtype, query.device
    log_sums = ops.cast(logsumexp, dtype)
    addresses = routine(dtype, device)
    if addresses is None or (attn_mask is not None and attn_mask.rank not in (2, 4)):
        scores = _scores(query, key, is_causal, attn_mask, scale)
        weights = exp(scores - ops.unsqueeze(log_sums, -1))
        return _gradients(grad_out, query, key, value, out, weights, scale)
    operands, swapped = _rows_anywhere(grad_out, query, key, value, out)
    results = ops.custom(
        "tmb_attention_backward",
        device,
        [
            *operands,
            log_sums,
            _forbidden(attn_mask, dtype),
            *addresses,
            *swapped,
            *_settings(is_causal, attn_mask, scale),
        ],
        [
            TensorType(dtype, [v.shape[i] for i in (0, 2, 1, 3)], device)
            for v in (query, key, value)
        ],
    )
    of_query, of_key, of_value = (permuted(v.tensor, [0, 2, 1, 3]) for v in results)
    return of_query, of_key, of_value


def _gradients(
    grad: TensorValue,
    query: TensorValue,
    key: TensorValue,
    value: TensorValue,
    out: TensorValue,
    weights: TensorValue,
    scale: float | None,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Those of query, key and value, from all ``weights`` of keys at once."""
    heads = key.shape[1]
    of_weights = product(_grouped(grad, heads), ops.transpose(value, -1, -2))
    of_weights = ops.reshape(of_weights, weights.shape)
    of_scores = weights * (of_weights - ops.sum(grad * out, -1))
    of_scores = _grouped(of_scores * _factor(query, scale), heads)
    # The queries that share a key are added up in these products.
    of_key = product(ops.transpose(of_scores, -1, -2), _grouped(query, heads))
    of_value = product(ops.transpose(_grouped(weights, heads), -1, -2), _grouped(grad, heads))
    return ops.reshape(product(of_scores, key), query.shape), of_key, of_value


def _rows_anywhere(*values: TensorValue) -> tuple[list[TensorValue], list[TensorValue]]:
    """Operands of a kernel, without the permutations that put heads before rows, and whether it
    is to swap these dimensions of each."""
    plain = [unpermuted(v, [0, 2, 1, 3]) for v in values]
    operands = [v if source is None else source for v, source in zip(values, plain, strict=True)]
    return operands, [number(source is not None) for source in plain]


def _settings(is_causal: bool, mask: TensorValue | None, scale: float | None) -> list[TensorValue]:
    """The last arguments of a kernel."""
    scaled = ops.constant(scale or 0, DType.float64, DeviceRef.CPU())
    return [number(mask is not None), number(is_causal), number(scale is not None), scaled]


def _forbidden(mask: TensorValue | None, dtype: DType) -> TensorValue:
    """The mask of a kernel."""
    if mask is None:
        return nothing(dtype, 4)
    added = _additive(mask, dtype)
    return ops.reshape(added, [1, 1, *mask.shape]) if mask.rank == 2 else added


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
    batch, heads, length, _ = query.shape
    scores = product(_grouped(query, key.shape[1]), ops.transpose(key, -1, -2))
    scores = ops.reshape(scores, [batch, heads, length, key.shape[2]])
    scores = scores * _factor(query, scale)
    if mask is not None and mask.dtype != DType.bool:
        scores = scores + ops.cast(mask, scores.dtype)
    elif mask is not None:
        scores = _masked(scores, mask)
    if is_causal:
        scores = _masked(scores, _causal(length, key.shape[2], scores))
    return scores


def _factor(query: TensorValue, scale: float | None) -> TensorValue:
    if scale is not None:
        return constant(scale, query.dtype, query.device)
    return ops.rsqrt(count([query.shape[3]], query.dtype, query.device))


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
