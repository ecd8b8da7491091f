"""Arithmetic of two operands."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected, has_own_functions
from torch_max_backend.ops.common import elementary, numerics
from torch_max_backend.ops.common.elementwise import elementwise
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import (
    Operand,
    broadcast,
    is_zero,
    operands,
    opmath,
    same_operand,
    to_dtype,
)
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


def _pair(self: Operand, other: Operand) -> list[TensorValue]:
    """Both operands in the dtype to compute the result in."""
    return operands(opmath(expected().dtype), self, other)


@map_to(aten.add.Tensor, aten.add.Scalar)
def add(self: Operand, other: Operand, *, alpha: Operand = 1) -> TensorValue:
    """add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    a, b = _pair(self, other)
    b = _scaled(b, alpha)
    return ops.logical_or(a, b) if a.dtype == DType.bool else ops.add(a, b)


@map_to(aten.sub.Tensor, aten.sub.Scalar)
def sub(self: Operand, other: Operand, *, alpha: Operand = 1) -> TensorValue:
    """sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    a, b = _pair(self, other)
    return _difference(a, b, alpha, minuend=0)


@map_to(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(self: Operand, other: Operand, alpha: Operand = 1) -> TensorValue:
    """rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    a, b = _pair(self, other)
    return _difference(b, a, alpha, minuend=1)


def _is_folded_zero(position: int) -> bool:
    """Whether an argument is 0, and MAX folds what is done with it. Steps fold nothing."""
    return is_zero(position) and not has_own_functions()


def _folds_difference(a: TensorValue, alpha: Operand) -> bool:
    """Whether MAX folds ``x - alpha x`` to 0."""
    plain = type(alpha) in (int, float) and alpha == 1
    return plain and a.dtype.is_float() and not has_own_functions()


def _difference(a: TensorValue, b: TensorValue, alpha: Operand, *, minuend: int) -> TensorValue:
    if same_operand() and _folds_difference(a, alpha):
        return numerics.zero_times(a)
    b = _scaled(b, alpha)
    if is_zero(minuend) and not a.dtype.is_float():
        return broadcast(numerics.negate(b), expected().shape)
    return ops.sub(a, b)


def _scaled(value: TensorValue, alpha: Operand) -> TensorValue:
    if not isinstance(alpha, TensorValue) and alpha == 1:
        return value
    (factor,) = operands(value.dtype, alpha)
    if value.dtype == DType.bool:
        return ops.logical_and(value, factor)
    return ops.mul(value, factor)


@map_to(aten.mul.Tensor, aten.mul.Scalar)
def mul(self: Operand, other: Operand) -> TensorValue:
    """mul.Tensor(Tensor self, Tensor other) -> Tensor"""
    a, b = _pair(self, other)
    if a.dtype == DType.bool:
        return ops.logical_and(a, b)
    if a.dtype.is_float() and (_is_folded_zero(0) or _is_folded_zero(1)):
        return broadcast(numerics.zero_times(a if is_zero(1) else b), expected().shape)
    return ops.mul(a, b)


@map_to(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, aten.true_divide.Scalar)
def div(self: Operand, other: Operand) -> TensorValue:
    """div.Tensor(Tensor self, Tensor other) -> Tensor"""
    a, b = _pair(self, other)
    if _is_folded_zero(0):
        return broadcast(numerics.zero_over(b), expected().shape)
    return ops.div(a, b)


def _refuse_integer_zero(
    self: object, other: object, rounding_mode: str | None = "floor"
) -> Refusal | None:
    if rounding_mode is None or isinstance(other, torch.Tensor) or other != 0:
        return None
    if torch.result_type(self, other).is_floating_point:
        return None
    return Refusal("torch raises ZeroDivisionError for integers divided by the constant 0")


def _quotient_kernel(
    self: object, other: object, rounding_mode: str | None = "floor"
) -> str | None:
    """The library for quotients that MAX's own division may trap on, and that need remainders."""
    dtype = torch.result_type(self, other)
    if dtype.is_floating_point:
        own = rounding_mode == "floor"
    else:
        own = rounding_mode is not None and not _is_plain(other, dtype.itemsize)
    return "elementwise.division" if own else None


def _is_plain(divisor: object, size: int) -> bool:
    """Whether a divisor is a number that integers of so many bytes do not turn into 0 or -1."""
    return isinstance(divisor, int) and (divisor + 1) % (1 << (8 * size)) > 1


@map_to(
    aten.div.Tensor_mode,
    aten.div.Scalar_mode,
    supports=_refuse_integer_zero,
    kernels=_quotient_kernel,
)
def div_mode(self: Operand, other: Operand, *, rounding_mode: str | None) -> TensorValue:
    """div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor"""
    a, b = _pair(self, other)
    if rounding_mode is None:
        return ops.div(a, b)
    if rounding_mode == "floor":
        return _floor_quotient(a, b, other)
    if a.dtype.is_float():
        return ops.trunc(ops.div(a, b))
    return _integer_quotient(a, b, other, floor=False)


@map_to(
    aten.floor_divide.default,
    aten.floor_divide.Scalar,
    supports=_refuse_integer_zero,
    kernels=_quotient_kernel,
)
def floor_divide(self: Operand, other: Operand) -> TensorValue:
    """floor_divide(Tensor self, Tensor other) -> Tensor"""
    a, b = _pair(self, other)
    return _floor_quotient(a, b, other)


def _floor_quotient(a: TensorValue, b: TensorValue, other: Operand) -> TensorValue:
    if not a.dtype.is_float():
        return _integer_quotient(a, b, other, floor=True)
    # Python's rules, as torch: exact remainder first, since a / b may have rounded up to a whole.
    zero, one = number(0, a), number(1, a)
    remainder = elementwise("tmb_float_remainder", a, b, floored=False)
    quotient = ops.div(ops.sub(a, remainder), b)
    quotient = ops.where(_wrong_sign(remainder, b), ops.sub(quotient, one), quotient)
    whole = ops.floor(quotient)
    late = ops.greater(ops.sub(quotient, whole), number(0.5, a))
    whole = ops.where(late, ops.add(whole, one), whole)
    # A zero has the sign of the quotient.
    plain = ops.div(a, b)
    whole = ops.where(ops.equal(whole, zero), ops.mul(plain, zero), whole)
    return ops.where(ops.equal(b, zero), plain, whole)


def _wrong_sign(remainder: TensorValue, divisor: TensorValue) -> TensorValue:
    """Whether a remainder is not zero and does not have the divisor's sign."""
    zero = number(0, divisor)
    differ = ops.logical_xor(ops.greater(zero, remainder), ops.greater(zero, divisor))
    return ops.logical_and(numerics.not_equal(remainder, zero), differ)


def _integer_quotient(
    a: TensorValue, b: TensorValue, other: Operand, *, floor: bool
) -> TensorValue:
    """Integer division. Where torch raises on the CPU (a divisor of 0) a GPU's value is
    arbitrary, as torch's is there."""
    if not _is_plain(other, a.dtype.size_in_bytes):
        kind = "floor" if floor else "trunc"
        return elementwise("tmb_integer_division", a, b, kind=kind)
    quotient = ops.floor_div(a, b)
    if floor or not a.dtype.is_signed_integral():
        return quotient
    remainder = ops.sub(a, ops.mul(quotient, b))
    zero = number(0, a)
    negative = ops.logical_xor(ops.greater(zero, a), ops.greater(zero, b))
    up = ops.logical_and(numerics.not_equal(remainder, zero), negative)
    return ops.where(up, ops.add(quotient, number(1, a)), quotient)


def _remainder_kernel(self: object, other: object) -> str | None:
    """The library for remainders: of all floats, and where MAX's own division may trap."""
    dtype = torch.result_type(self, other)
    plain = _is_plain(other, dtype.itemsize) and not dtype.is_floating_point
    return None if plain else "elementwise.division"


@map_to(
    aten.remainder.Tensor,
    aten.remainder.Scalar,
    aten.remainder.Scalar_Tensor,
    supports=_refuse_integer_zero,
    kernels=_remainder_kernel,
)
def remainder(self: Operand, other: Operand) -> TensorValue:
    """remainder.Tensor(Tensor self, Tensor other) -> Tensor"""
    a, b = _rounded_pair(self, other)
    if a.dtype.is_float():
        return elementwise("tmb_float_remainder", a, b, floored=True)
    if not _is_plain(other, a.dtype.size_in_bytes):
        return elementwise("tmb_integer_division", a, b, kind="remainder")
    return ops.sub(a, ops.mul(ops.floor_div(a, b), b))


@map_to(
    aten.fmod.Tensor,
    aten.fmod.Scalar,
    supports=_refuse_integer_zero,
    kernels=_remainder_kernel,
)
def fmod(self: Operand, other: Operand) -> TensorValue:
    """fmod.Tensor(Tensor self, Tensor other) -> Tensor"""
    a, b = _rounded_pair(self, other)
    if a.dtype.is_float():
        return elementwise("tmb_float_remainder", a, b, floored=False)
    if not _is_plain(other, a.dtype.size_in_bytes):
        return elementwise("tmb_integer_division", a, b, kind="fmod")
    return ops.sub(a, ops.mul(_integer_quotient(a, b, other, floor=False), b))


def _rounded_pair(self: Operand, other: Operand) -> list[TensorValue]:
    """The operands rounded to the result's dtype, numbers too, then widened."""
    dtype = expected().dtype
    return [to_dtype(v, opmath(dtype)) for v in operands(dtype, self, other)]


@map_to(aten.maximum.default)
def maximum(self: Operand, other: Operand) -> TensorValue:
    """maximum(Tensor self, Tensor other) -> Tensor"""
    a, b = _pair(self, other)
    return ops.logical_or(a, b) if a.dtype == DType.bool else numerics.maximum(a, b)


@map_to(aten.minimum.default)
def minimum(self: Operand, other: Operand) -> TensorValue:
    """minimum(Tensor self, Tensor other) -> Tensor"""
    a, b = _pair(self, other)
    return ops.logical_and(a, b) if a.dtype == DType.bool else numerics.minimum(a, b)


@map_to(aten.fmax.default)
def fmax(self: Operand, other: Operand) -> TensorValue:
    """fmax(Tensor self, Tensor other) -> Tensor"""
    a, b = _pair(self, other)
    if a.dtype == DType.bool:
        return ops.logical_or(a, b)
    return _unless_nan(numerics.maximum(a, b), a, b)


@map_to(aten.fmin.default)
def fmin(self: Operand, other: Operand) -> TensorValue:
    """fmin(Tensor self, Tensor other) -> Tensor"""
    a, b = _pair(self, other)
    if a.dtype == DType.bool:
        return ops.logical_and(a, b)
    return _unless_nan(numerics.minimum(a, b), a, b)


def _unless_nan(result: TensorValue, a: TensorValue, b: TensorValue) -> TensorValue:
    if not a.dtype.is_float():
        return result
    return ops.where(ops.is_nan(a), b, ops.where(ops.is_nan(b), a, result))


def _register(name: str) -> None:
    def lowering(self: Operand, other: Operand) -> TensorValue:
        return elementary.binary(name, expected().dtype, self, other)

    lowering.__name__ = name
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", name)
    lowering.__doc__ = f"{name}(Tensor self, Tensor other) -> Tensor"
    packet = getattr(aten, name)
    map_to(packet.default, kernels=elementary.KERNELS, native16=True)(lowering)


for _name in ("atan2", "hypot", "logaddexp", "logaddexp2"):
    _register(_name)
