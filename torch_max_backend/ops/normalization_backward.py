"""Gradients of normalizations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import current_node, expected, is_used
from torch_max_backend.ops.common.bank import nothing
from torch_max_backend.ops.common.promotion import full, opmath, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

Gradients = tuple[TensorValue | None, TensorValue | None, TensorValue | None]


@map_to(aten.native_layer_norm_backward.default, native16=True, kernels="base")
def layer_norm_backward(
    grad_out: TensorValue,
    input: TensorValue,
    normalized_shape: list[int | Dim],
    mean: TensorValue,
    rstd: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    output_mask: list[bool],
) -> Gradients:
    """native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape,
    Tensor mean, Tensor rstd, Tensor? weight, Tensor? bias, bool[3] output_mask)
    -> (Tensor, Tensor, Tensor)"""
    wanted = [i for i in range(3) if _is_wanted(i)]
    if is_empty(input.shape):
        return _as_expected({i: full(0, *_spec(i)) for i in wanted})
    length = math.prod(input.shape[: input.rank - len(normalized_shape)], start=Dim(1))
    width = math.prod(normalized_shape, start=Dim(1))
    rows = ops.reshape(input, [length, width])
    gradient = to_dtype(grad_out, input.dtype)
    if len(normalized_shape) > 1 or input.rank == 1:
        gradient = ops.reshape(gradient, rows.shape)
    moments = [ops.reshape(v, [length]) for v in (mean, rstd)]
    factors = None if weight is None else ops.reshape(weight, [width])
    compute = _by_kernel if input.device.is_cpu() else _by_max
    return _as_expected(compute(gradient, rows, moments, factors, wanted))


def _is_wanted(index: int) -> bool:
    """Whether torch's metadata has output ``index``, which a mask may leave out, and it is used."""
    return current_node().outputs[index] is not None and is_used(index)


def _spec(index: int) -> tuple[DType, tuple[int | Dim, ...], DeviceRef]:
    spec = expected(index)
    return spec.dtype, spec.shape, spec.device


def _as_expected(results: dict[int, TensorValue]) -> Gradients:
    first, second, third = (
        ops.reshape(to_dtype(results[i], expected(i).dtype), expected(i).shape)
        if i in results
        else None
        for i in range(3)
    )
    return first, second, third


def _by_kernel(
    gradient: TensorValue,
    rows: TensorValue,
    moments: Sequence[TensorValue],
    weight: TensorValue | None,
    wanted: Sequence[int],
) -> dict[int, TensorValue]:
    """The wanted gradients by their number. ``gradient`` has any rank: what computes it becomes a
    part of the kernel, from which a reshape would part it."""
    dtype, device = rows.dtype, rows.device
    given = [] if weight is None else [weight.dtype]
    kinds = {*given, *(expected(i).dtype for i in wanted if i > 0)}
    # Weight and bias are of one dtype wherever they are parameters of one module.
    kind = kinds.pop() if len(kinds) == 1 else opmath(dtype)
    # What nobody wants takes no memory.
    shapes = [
        rows.shape if 0 in wanted else [0, 0],
        *(rows.shape[1:] if i in wanted else [0] for i in (1, 2)),
    ]
    results = ops.custom(
        "tmb_normalize_backward",
        device,
        [
            gradient,
            rows,
            *moments,
            nothing(kind) if weight is None else to_dtype(weight, kind),
        ],
        [
            TensorType(d, shape, device)
            for d, shape in zip((dtype, kind, kind), shapes, strict=True)
        ],
        {"summed": 1 in wanted or 2 in wanted},
    )
    return {i: results[i].tensor for i in wanted}


def _by_max(
    gradient: TensorValue,
    rows: TensorValue,
    moments: Sequence[TensorValue],
    weight: TensorValue | None,
    wanted: Sequence[int],
) -> dict[int, TensorValue]:
    """The same from MAX's operations, for GPUs."""
    dtype = opmath(rows.dtype)
    rows, gradient, center, scale = (to_dtype(v, dtype) for v in (rows, gradient, *moments))
    gradient = ops.reshape(gradient, rows.shape)
    center, scale = (ops.unsqueeze(v, 1) for v in (center, scale))
    normal = (rows - center) * scale
    results = {}
    if 0 in wanted:
        scaled = gradient if weight is None else gradient * to_dtype(weight, dtype)
        along = ops.mean(scaled * normal, 1)
        results[0] = (scaled - ops.mean(scaled, 1) - normal * along) * scale
    if 1 in wanted:
        results[1] = ops.sum(gradient * normal, 0)
    if 2 in wanted:
        results[2] = ops.sum(gradient, 0)
    return results
