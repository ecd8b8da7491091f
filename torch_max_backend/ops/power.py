"""Powers."""

from __future__ import annotations

import math

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.convert.registry import map_to
from torch_max_backend.ops.common import numerics
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import Number, Operand, broadcast, operands, opmath

aten = torch.ops.aten

# Up to here an integer power of floats is a chain of products: as accurate, and much faster.
_LARGEST_CHAIN = 8


@map_to(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def pow_tensor(self: Operand, exponent: Operand) -> TensorValue:
    """pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor"""
    base, power = operands(opmath(expected().dtype), self, exponent)
    if not base.dtype.is_float():
        return _integer_power(base, power)
    return _float_power(base, power)


@map_to(aten.pow.Tensor_Scalar)
def pow_scalar(self: Operand, exponent: Operand) -> TensorValue:
    """pow.Tensor_Scalar(Tensor self, Scalar exponent) -> Tensor"""
    (base,) = operands(opmath(expected().dtype), self)
    if isinstance(exponent, TensorValue):
        return pow_tensor(self, exponent)
    if exponent == _whole(exponent) and (
        abs(exponent) <= _LARGEST_CHAIN or not base.dtype.is_float()
    ):
        if exponent < 0:
            # The reciprocal first: small bases would vanish in the power.
            base = ops.div(number(1, base), base)
        return _chain(base, abs(int(exponent)))
    if exponent == 0.5:
        return ops.sqrt(base)
    if exponent == -0.5:
        return ops.rsqrt(base)
    return _float_power(base, number(exponent, base))


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


def _float_power(base: TensorValue, power: TensorValue) -> TensorValue:
    """C's ``pow``. MAX's own is off by a hundred units in the last place and knows few of the
    special cases, so the magnitude is exp(y log |x|) in float64."""
    zero, one = number(0, base), number(1, base)
    magnitude = ops.abs(base)
    exponent = ops.cast(power, DType.float64)
    result = numerics.exp(ops.mul(exponent, ops.log(ops.cast(magnitude, DType.float64))))
    result = ops.cast(result, base.dtype)
    result = ops.where(ops.equal(magnitude, one), one, result)
    whole = ops.equal(ops.trunc(power), power)
    half = ops.mul(power, number(0.5, power))
    odd = ops.logical_and(whole, numerics.not_equal(ops.trunc(half), half))
    flipped = ops.logical_and(odd, numerics.negative(base))
    result = ops.where(flipped, ops.negate(result), result)
    finite_negative = ops.logical_and(
        ops.greater(zero, base), ops.greater(base, number(-math.inf, base))
    )
    undefined = ops.logical_and(finite_negative, ops.logical_not(whole))
    result = ops.where(undefined, number(math.nan, base), result)
    return ops.where(ops.equal(power, zero), one, result)


def _integer_power(base: TensorValue, power: TensorValue) -> TensorValue:
    """Powers of integers by squaring, since the exponent is data; below 0 only 1 and -1 last."""
    dtype = base.dtype
    bits = 8 * dtype.size_in_bytes - dtype.is_signed_integral()
    if dtype.size_in_bytes < 8:
        # MAX miscompiles the chain for uint8; what wraps around in 64 bits wraps in fewer.
        base, power = ops.cast(base, DType.int64), ops.cast(power, DType.int64)
    return ops.cast(_wide_integer_power(base, power, bits), dtype)


def _wide_integer_power(base: TensorValue, power: TensorValue, bits: int) -> TensorValue:
    zero, one, two = (number(n, power) for n in (0, 1, 2))
    result, square, rest = number(1, base), base, power
    for _ in range(bits):
        half = ops.floor_div(rest, two)
        odd = ops.equal(ops.sub(rest, ops.mul(half, two)), one)
        result = ops.where(odd, ops.mul(result, square), result)
        square, rest = ops.mul(square, square), half
    if not power.dtype.is_signed_integral():
        return result
    reciprocal = ops.where(ops.equal(base, one), one, zero)
    even = ops.equal(ops.sub(power, ops.mul(ops.floor_div(power, two), two)), zero)
    alternating = ops.where(even, one, number(-1, base))
    reciprocal = ops.where(ops.equal(base, number(-1, base)), alternating, reciprocal)
    return ops.where(ops.greater(zero, power), reciprocal, result)
