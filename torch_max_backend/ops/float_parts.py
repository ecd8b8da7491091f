"""Signs and exponents of floats, by kernels of ``mojo_kernels/mathematics/float_parts.mojo``."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.ops.common import elementary
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import Operand, broadcast, constant
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


@map_to(aten.signbit.default, kernels=elementary.KERNELS, native16=True)
def signbit(self: TensorValue) -> TensorValue:
    """signbit(Tensor self) -> Tensor"""
    if self.dtype.is_float():
        return elementary.converted("tmb_sign_bit", DType.bool, self)
    if self.dtype.is_signed_integral():
        return ops.greater(number(0, self), self)
    return broadcast(constant(False, DType.bool, self.device), self.shape)


@map_to(aten.copysign.Tensor, aten.copysign.Scalar, kernels=elementary.KERNELS, native16=True)
def copysign(self: Operand, other: Operand) -> TensorValue:
    """copysign.Tensor(Tensor self, Tensor other) -> Tensor"""
    return elementary.binary("copysign", expected().dtype, self, other)


@map_to(aten.frexp.Tensor, kernels=elementary.KERNELS, native16=True)
def frexp(self: TensorValue) -> tuple[TensorValue | None, TensorValue | None]:
    """frexp.Tensor(Tensor self) -> (Tensor mantissa, Tensor exponent)"""
    mantissa = elementary.unary("mantissa", self) if is_used(0) else None
    exponent = elementary.converted("tmb_exponent", DType.int32, self) if is_used(1) else None
    return mantissa, exponent
