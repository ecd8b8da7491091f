"""Normalizations over layers, batches, groups."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.ops.common.bank import nothing, number
from torch_max_backend.ops.common.promotion import constant, full, to_dtype, working_dtype
from torch_max_backend.ops.common.reduce import count, is_empty, mean
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


@map_to(aten.native_layer_norm.default, kernels="base")
def layer_norm(
    input: TensorValue,
    normalized_shape: list[int | Dim],
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
) -> tuple[TensorValue, TensorValue | None, TensorValue | None]:
    """native_layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, Tensor? bias,
    float eps) -> (Tensor, Tensor, Tensor)"""
    if is_empty(input.shape):
        return _nothing()
    kept = input.shape[: input.rank - len(normalized_shape)]
    width = math.prod(normalized_shape, start=Dim(1))
    rows = ops.reshape(input, [math.prod(kept, start=Dim(1)), width])
    statistics = [*kept, *[1] * len(normalized_shape)]
    return _normalized(rows, weight, bias, eps, input.shape, statistics)


def _nothing() -> tuple[TensorValue, TensorValue, TensorValue]:
    first, second, third = (
        full(value, working_dtype(i), expected(i).shape, expected(i).device)
        for i, value in enumerate((0, math.nan, math.nan))
    )
    return first, second, third


def _normalized(
    rows: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
    shape: Sequence[int | Dim],
    statistics: Sequence[int | Dim],
    groups: int = 1,
    repeat: int | Dim = 1,
) -> tuple[TensorValue, TensorValue | None, TensorValue | None]:
    """The three results of a norm over ``rows``; ``statistics`` is the shape of the last two.

    Row ``r`` takes part ``r % groups`` of the weights, one for each ``repeat`` columns.
    """
    dtype, device = rows.dtype, rows.device
    given = [None if v is None else _flat(to_dtype(v, dtype)) for v in (weight, bias)]
    if not device.is_cpu():
        return _normalized_by_max(rows, given, eps, shape, statistics, groups, repeat)
    length = rows.shape[0]
    results = ops.custom(
        "tmb_normalize",
        device,
        [
            rows,
            *(nothing(dtype) if v is None else v for v in given),
            number(groups),
            count([repeat], DType.int64, device) if isinstance(repeat, Dim) else number(repeat),
            ops.constant(eps, DType.float64, DeviceRef.CPU()),
        ],
        [
            TensorType(dtype, rows.shape, device),
            TensorType(dtype, [length], device),
            TensorType(dtype, [length], device),
        ],
    )
    result, center, deviation = (r.tensor for r in results)
    return (
        ops.reshape(result, shape),
        ops.reshape(center, statistics),
        ops.reshape(deviation, statistics),
    )


def _normalized_by_max(
    rows: TensorValue,
    given: Sequence[TensorValue | None],
    eps: float,
    shape: Sequence[int | Dim],
    statistics: Sequence[int | Dim],
    groups: int,
    repeat: int | Dim,
) -> tuple[TensorValue, TensorValue | None, TensorValue | None]:
    """The same from MAX's operations, for GPUs."""
    dtype, device = rows.dtype, rows.device
    width = rows.shape[1]
    center = ops.mean(rows, -1)
    spread = ops.mean((rows - center) * (rows - center), -1)
    deviation = ops.rsqrt(spread + constant(eps, dtype, device))
    if eps > 0:
        ones, zeros = (full(v, dtype, [width], device) for v in (1, 0))
        plain = ops.layer_norm(rows, ones, zeros, eps)
    else:
        # MAX's kernel takes no other eps; torch adds whatever it is given to the variance.
        plain = (rows - center) * deviation
    parts = [rows.shape[0] // groups, groups, width // repeat, repeat]
    result = ops.reshape(ops.rebind(plain, [parts[0] * groups, parts[2] * repeat]), parts)
    for value, combine in zip(given, (ops.mul, ops.add), strict=True):
        if value is not None:
            value = ops.rebind(value, [parts[1] * parts[2]])
            result = combine(result, ops.reshape(value, [1, *parts[1:3], 1]))
    return (
        ops.reshape(result, shape),
        ops.reshape(center, statistics) if is_used(1) else None,
        ops.reshape(deviation, statistics) if is_used(2) else None,
    )


def _flat(values: TensorValue) -> TensorValue:
    return ops.reshape(values, [math.prod(values.shape, start=Dim(1))])


@map_to(aten.native_group_norm.default, kernels="base")
def group_norm(
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    N: int | Dim,
    C: int | Dim,
    HxW: int | Dim,
    group: int,
    eps: float,
) -> tuple[TensorValue, TensorValue | None, TensorValue | None]:
    """native_group_norm(Tensor input, Tensor? weight, Tensor? bias, SymInt N, SymInt C,
    SymInt HxW, int group, float eps) -> (Tensor, Tensor, Tensor)"""
    if is_empty(input.shape):
        return _nothing()
    share = Dim(C) // group
    # States that the groups divide the channels, where MAX cannot know it.
    input = ops.rebind(input, [input.shape[0], share * group, *input.shape[2:]])
    pixels = math.prod(input.shape[2:], start=Dim(1))
    # In two steps, each of which MAX can prove.
    rows = ops.reshape(input, [input.shape[0], group, share * pixels])
    rows = ops.reshape(rows, [input.shape[0] * group, share * pixels])
    return _normalized(rows, weight, bias, eps, input.shape, expected(1).shape, group, pixels)


def _channels(values: TensorValue, like: TensorValue) -> TensorValue:
    values = ops.rebind(to_dtype(values, like.dtype), [like.shape[1]])
    return ops.reshape(values, [1, like.shape[1], *[1] * (like.rank - 2)])


@map_to(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias,
    Tensor running_mean, Tensor running_var, float momentum, float eps)
    -> (Tensor, Tensor, Tensor)"""
    mean, var = (to_dtype(v, input.dtype) for v in (running_mean, running_var))
    invstd = ops.rsqrt(var + constant(eps, input.dtype, input.device))
    empty = full(0, input.dtype, [0], input.device)
    return _batch_affine(input, mean, invstd, weight, bias), empty, empty


@map_to(aten._native_batch_norm_legit_functional.default, kernels="base")
def batch_norm_functional(
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue, TensorValue]:
    """_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias,
    Tensor running_mean, Tensor running_var, bool training, float momentum, float eps)
    -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)"""
    if not training:
        result, empty, _ = batch_norm_inference(
            input, weight, bias, running_mean, running_var, momentum, eps
        )
        return result, empty, empty, running_mean, running_var
    mu, spread, invstd = _batch_statistics(input, eps)
    n = count([input.shape[i] for i in _batch_axes(input)], input.dtype, input.device)
    one = constant(1, input.dtype, input.device)
    unbiased = spread * (n / (n - one))
    results = [
        to_dtype(new, old.dtype) * constant(momentum, old.dtype, input.device)
        + old * constant(1 - momentum, old.dtype, input.device)
        for old, new in ((running_mean, mu), (running_var, unbiased))
    ]
    return _batch_affine(input, mu, invstd, weight, bias), mu, invstd, results[0], results[1]


@map_to(aten._native_batch_norm_legit.no_stats, kernels="base")
def batch_norm_no_stats(
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias,
    bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)"""
    mu, _, invstd = _batch_statistics(input, eps)
    return _batch_affine(input, mu, invstd, weight, bias), mu, invstd


def _batch_axes(input: TensorValue) -> list[int]:
    return [i for i in range(input.rank) if i != 1]


def _batch_statistics(
    input: TensorValue, eps: float
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """Mean, biased variance and reciprocal standard deviation of each channel."""
    axes = _batch_axes(input)
    mu = mean(input, axes)
    spread = mean((input - mu) * (input - mu), axes)
    invstd = ops.rsqrt(spread + constant(eps, input.dtype, input.device))
    channels = [input.shape[1]]
    return (
        ops.reshape(mu, channels),
        ops.reshape(spread, channels),
        ops.reshape(invstd, channels),
    )


def _batch_affine(
    input: TensorValue,
    mu: TensorValue,
    invstd: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
) -> TensorValue:
    # One multiplication and one addition an element; torch folds the same way on CPU.
    scale = invstd if weight is None else to_dtype(weight, input.dtype) * invstd
    shift = -mu * scale
    if bias is not None:
        shift = to_dtype(bias, input.dtype) + shift
    return input * _channels(scale, input) + _channels(shift, input)
