"""Powers."""

from __future__ import annotations

import math

import torch
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common import elementary
from torch_max_backend.ops.common.elementwise import elementwise
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import Number, Operand, broadcast, operands, opmath
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

# Up to here an integer power of floats is a chain of products: as exact, and fused.
_LARGEST_CHAIN = 4


def _power_kernels(self: object, exponent: object) -> str:
    floating = torch.result_type(self, exponent).is_floating_point
    return elementary.KERNELS if floating else "elementwise.division"


@map_to(aten.pow.Tensor_Tensor, aten.pow.Scalar, kernels=_power_kernels)
def pow_tensor(self: Operand, exponent: Operand) -> TensorValue:
    """pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor"""
    dtype = opmath(expected().dtype)
    if dtype.is_float():
        return elementary.binary("pow", dtype, self, exponent)
    return elementwise("tmb_integer_power", *operands(dtype, self, exponent))


def _is_simple(exponent: object) -> bool:
    """Whether floats to this power are products or roots."""
    if isinstance(exponent, (int, float)):
        return exponent in (0.5, -0.5) or (
            exponent == _whole(exponent) and abs(exponent) <= _LARGEST_CHAIN
        )
    return False


def _kernels(self: object, exponent: object) -> str | None:
    if _is_simple(exponent):
        return None
    library = _power_kernels(self, exponent)
    # Integers to the power of a number are products.
    return None if isinstance(exponent, int) and library != elementary.KERNELS else library


@map_to(aten.pow.Tensor_Scalar, kernels=_kernels)
def pow_scalar(self: Operand, exponent: Operand) -> TensorValue:
    """pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor"""
    (base,) = operands(opmath(expected().dtype), self)
    if isinstance(exponent, TensorValue):
        return pow_tensor(self, exponent)
    if base.dtype.is_float() and not _is_simple(exponent):
        return elementary.binary("pow", base.dtype, base, exponent)
    if exponent == 0.5:
        return ops.sqrt(base)
    if exponent == -0.5:
        return ops.rsqrt(base)
    if exponent < 0:
        # The reciprocal first: small bases would vanish in the power.
        base = ops.div(number(1, base), base)
    return _chain(base, abs(int(exponent)))


def _whole(value: Number) -> int | None:
    return int(value) if math.isfinite(value) and value == int(value) else None


def _chain(x: TensorValue, n: int) -> TensorValue:
    """``x`` to the ``n`` by squaring; wraps around for integers."""
    result: TensorValue | None = None
    while n:
        if n & 1:
            result = x if result is None else ops.mul(result, x)
        n >>= 1
        if n:
            x = ops.mul(x, x)
    return broadcast(number(1, x), x.shape) if result is None else result
