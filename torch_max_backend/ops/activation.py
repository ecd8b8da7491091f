"""Activation functions. Those that are missing here torch takes apart."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common import elementary, numerics
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import Number, opmath, to_dtype
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


def _wide(x: TensorValue) -> TensorValue:
    return to_dtype(x, opmath(expected().dtype))


@map_to(aten.relu.default)
def relu(self: TensorValue) -> TensorValue:
    """relu(Tensor self) -> Tensor"""
    return numerics.relu(_wide(self))


@map_to(aten.gelu.default, kernels=elementary.kernels_on_gpu)
def gelu(self: TensorValue, *, approximate: str = "none") -> TensorValue:
    """gelu(Tensor self, *, str approximate='none') -> Tensor"""
    return numerics.gelu(_wide(self), approximate)


@map_to(aten.silu.default)
def silu(self: TensorValue) -> TensorValue:
    """silu(Tensor self) -> Tensor"""
    x = _wide(self)
    if x.dtype == DType.float64:
        return ops.mul(x, numerics.sigmoid(x))
    return ops.silu(x)


@map_to(aten.leaky_relu.default)
def leaky_relu(self: TensorValue, negative_slope: Number = 0.01) -> TensorValue:
    """leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor"""
    x = _wide(self)
    positive = ops.greater(x, number(0, x))
    return ops.where(positive, x, ops.mul(x, number(negative_slope, x)))


@map_to(aten.elu.default)
def elu(
    self: TensorValue, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1
) -> TensorValue:
    """elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor"""
    x = _wide(self)
    curved = numerics.expm1(_times(x, input_scale))
    curved = _times(curved, alpha * scale)
    return ops.where(ops.greater(x, number(0, x)), _times(x, scale), curved)


def _times(x: TensorValue, factor: Number) -> TensorValue:
    return x if factor == 1 else ops.mul(x, number(factor, x))


@map_to(aten.hardtanh.default)
def hardtanh(self: TensorValue, min_val: Number = -1, max_val: Number = 1) -> TensorValue:
    """hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor"""
    x = _wide(self)
    return numerics.clamp(x, number(min_val, x), number(max_val, x))


@map_to(aten.hardshrink_backward.default)
def hardshrink_backward(grad_out: TensorValue, self: TensorValue, lambd: Number) -> TensorValue:
    """hardshrink_backward(Tensor grad_out, Tensor self, Scalar lambd) -> Tensor"""
    x = _wide(self)
    within = ops.greater_equal(number(lambd, x), ops.abs(x))
    return ops.where(within, number(0, x), _wide(grad_out))
