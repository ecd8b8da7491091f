"""Lookup of rows, its gradient, and sums of rows."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.ops.common.bank import nothing, number
from torch_max_backend.ops.common.combining import combine_rows
from torch_max_backend.ops.common.positions import (
    checked,
    is_negative,
    is_zero,
    on_device,
    product,
    scalar,
    take_rows,
)
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.ops.gather_scatter import LIBRARIES
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


@map_to(aten.embedding.default, native16=True, kernels="base")
def embedding(
    weight: TensorValue,
    indices: TensorValue,
    padding_idx: int | Dim = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorValue:
    """embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1,
    bool scale_grad_by_freq=False, bool sparse=False) -> Tensor

    An index out of range raises on CPU when the model runs; on a GPU it is clamped.
    """
    count, width = product(indices.shape), weight.shape[1]
    if not weight.device.is_cpu() or is_zero(count) or is_zero(width):
        return take_rows(weight, indices, 0, wrap=False)
    # Compiles in a quarter of the time that MAX's gather takes.
    rows = ops.custom(
        "tmb_lookup",
        weight.device,
        [weight, ops.reshape(indices, [count])],
        [TensorType(weight.dtype, [count, width], weight.device)],
    )[0]
    return ops.reshape(rows.tensor, [*indices.shape, width])


@map_to(aten.embedding_dense_backward.default, kernels=LIBRARIES)
def embedding_dense_backward(
    grad_output: TensorValue,
    indices: TensorValue,
    num_weights: int | Dim,
    padding_idx: int | Dim,
    scale_grad_by_freq: bool,
) -> TensorValue:
    """embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights,
    SymInt padding_idx, bool scale_grad_by_freq) -> Tensor"""
    spec = expected()
    device, dtype = grad_output.device, grad_output.dtype
    count, width = product(indices.shape), grad_output.shape[-1]
    zeros = full(0, dtype, spec.shape, device)
    if is_zero(count) or is_zero(width) or is_zero(num_weights):
        return zeros
    rows = ops.reshape(grad_output, [count, width])
    if device.is_cpu():
        places = ops.reshape(indices, [count])
        if scale_grad_by_freq:
            ones = full(1, dtype, [1, count, 1], device)
            uses = combine_rows(None, places, ones, "sum", shape=[1, num_weights, 1])
            uses = ops.gather(ops.reshape(uses, [num_weights]), places, 0)
            rows = ops.div(rows, ops.unsqueeze(uses, 1))
        padding = is_negative("padding_idx", padding_idx)
        found = combine_rows(
            None,
            places,
            ops.reshape(rows, [1, count, width]),
            "sum",
            skip=None if padding else scalar(padding_idx),
            shape=[1, num_weights, width],
        )
        return ops.reshape(found, spec.shape)
    places = checked(ops.reshape(indices, [count]), num_weights, wrap=False)
    at = ops.unsqueeze(places, 1)
    if scale_grad_by_freq:
        none = full(0, dtype, [num_weights], device)
        ones = full(1, dtype, [count], device)
        uses = ops.scatter_nd_add(none, ones, at)
        rows = ops.div(rows, ops.unsqueeze(ops.gather(uses, places, 0), 1))
    if not is_negative("padding_idx", padding_idx):
        padding = ops.unsqueeze(ops.equal(places, on_device(padding_idx, device)), 1)
        nothing = full(0, dtype, rows.shape, device)
        rows = ops.where(ops.broadcast_to(padding, rows.shape), nothing, rows)
    return ops.scatter_nd_add(zeros, rows, at)


_MODES = ("sum", "mean", "max")


@map_to(
    aten._embedding_bag.default, aten._embedding_bag_forward_only.default, kernels="reduction.bags"
)
def embedding_bag(
    weight: TensorValue,
    indices: TensorValue,
    offsets: TensorValue,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: TensorValue | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[TensorValue | None, ...]:
    """_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False,
    int mode=0, bool sparse=False, Tensor? per_sample_weights=None,
    bool include_last_offset=False, int padding_idx=-1)
    -> (Tensor output, Tensor offset2bag, Tensor bag_size, Tensor max_indices)"""
    shape, device = expected(0).shape, weight.device
    count = indices.shape[0]
    lines = [[count], [shape[0]], shape]
    scales = nothing(weight.dtype) if per_sample_weights is None else per_sample_weights
    given = [to_dtype(v, DType.int64) for v in (indices, offsets)]
    found = ops.custom(
        "tmb_embedding_bag",
        device,
        [weight, *given, scales, number(padding_idx)],
        [TensorType(weight.dtype, shape, device)]
        + [TensorType(DType.int64, line, device) for line in lines],
        {"kind": _MODES[mode]},
    )
    results: list[TensorValue | None] = [found[0].tensor]
    for i in (1, 2, 3):
        spec = expected(i)
        if not is_used(i):
            results.append(None)
        elif is_empty(spec.shape) or (i == 3 and _MODES[mode] != "max"):
            # Places of maxima that are not looked for.
            results.append(full(0, spec.dtype, spec.shape, device))
        else:
            results.append(ops.reshape(to_dtype(found[i].tensor, spec.dtype), spec.shape))
    return tuple(results)
