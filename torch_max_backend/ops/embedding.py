"""Lookup of rows, and its gradient."""

from __future__ import annotations

import torch
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.convert.registry import map_to
from torch_max_backend.ops.common.positions import (
    checked,
    is_negative,
    is_zero,
    on_device,
    product,
    take_rows,
)
from torch_max_backend.ops.common.promotion import full

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


@map_to(aten.embedding_dense_backward.default, kernels="base")
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
