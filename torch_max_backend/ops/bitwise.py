"""Operations on bits: logic on bool, ``mojo_kernels/elementwise/bits.mojo`` on other dtypes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.elementwise import elementwise
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import Operand, operands, opmath
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten
Function = Callable[[TensorValue, TensorValue], TensorValue]

_BITWISE: dict[str, Function] = {
    "and": ops.logical_and,
    "or": ops.logical_or,
    "xor": ops.logical_xor,
}


def _unless_bool(self: object, other: object) -> str | None:
    return None if torch.result_type(self, other) == torch.bool else "elementwise.bits"


def _register(kind: str, logical: Function) -> None:
    def lowering(self: Operand, other: Operand) -> TensorValue:
        a, b = operands(expected().dtype, self, other)
        return logical(a, b) if a.dtype == DType.bool else elementwise("tmb_bits", a, b, kind=kind)

    name = f"bitwise_{kind}"
    lowering.__name__ = name
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", name)
    lowering.__doc__ = f"{name}.Tensor(Tensor self, Tensor other) -> Tensor"
    packet = getattr(aten, name)
    map_to(packet.Tensor, packet.Scalar, packet.Scalar_Tensor, kernels=_unless_bool)(lowering)


for _kind, _logical in _BITWISE.items():
    _register(_kind, _logical)


@map_to(aten.bitwise_not.default)
def bitwise_not(self: TensorValue) -> TensorValue:
    """bitwise_not(Tensor self) -> Tensor"""
    if expected().dtype == DType.bool:
        return ops.logical_not(self)
    # Two's complement: all bits set, minus x.
    return ops.sub(number(-1, self), self)


@map_to(
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Tensor,
    aten.__lshift__.Scalar,
    kernels="elementwise.bits",
)
def bitwise_left_shift(self: Operand, other: Operand) -> TensorValue:
    """bitwise_left_shift.Tensor(Tensor self, Tensor other) -> Tensor"""
    return elementwise("tmb_bits", *operands(expected().dtype, self, other), kind="left")


@map_to(
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Tensor,
    aten.__rshift__.Scalar,
    kernels="elementwise.bits",
)
def bitwise_right_shift(self: Operand, other: Operand) -> TensorValue:
    """bitwise_right_shift.Tensor(Tensor self, Tensor other) -> Tensor"""
    return elementwise("tmb_bits", *operands(expected().dtype, self, other), kind="right")


@map_to(aten.gcd.default, kernels="elementwise.bits")
def gcd(self: TensorValue, other: TensorValue) -> TensorValue:
    """gcd(Tensor self, Tensor other) -> Tensor"""
    return elementwise("tmb_bits", *operands(expected().dtype, self, other), kind="gcd")


@map_to(aten.lcm.default, kernels="elementwise.bits")
def lcm(self: TensorValue, other: TensorValue) -> TensorValue:
    """lcm(Tensor self, Tensor other) -> Tensor"""
    return elementwise("tmb_bits", *operands(expected().dtype, self, other), kind="lcm")


@map_to(aten.nextafter.default, kernels="elementwise.bits", native16=True)
def nextafter(self: TensorValue, other: TensorValue) -> TensorValue:
    """nextafter(Tensor self, Tensor other) -> Tensor"""
    return elementwise("tmb_bits", *operands(expected().dtype, self, other), kind="next")


@map_to(aten.ldexp.Tensor, kernels="elementwise.bits")
def ldexp(self: TensorValue, other: TensorValue) -> TensorValue:
    """ldexp.Tensor(Tensor self, Tensor other) -> Tensor"""
    dtype = opmath(expected().dtype)
    if other.dtype.is_float():
        return elementwise("tmb_times_power_of_two", *operands(dtype, self, other))
    x, exponent = *operands(dtype, self), *operands(DType.int32, other)
    return elementwise("tmb_ldexp", x, exponent)
