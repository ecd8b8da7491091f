"""Elementwise functions of one tensor."""

from __future__ import annotations

from collections.abc import Callable

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common import elementary, numerics
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import broadcast, constant, opmath, to_dtype
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten
Function = Callable[[TensorValue], TensorValue]


def _reciprocal(x: TensorValue) -> TensorValue:
    return ops.div(number(1, x), x)


# Functions whose result is floating-point: they take the result's dtype. These MAX has, fast and
# exact enough, and fuses;
_FLOAT_FUNCTIONS: dict[str, Function] = {
    "exp": numerics.exp,
    "log": ops.log,
    "log1p": ops.log1p,
    "sqrt": ops.sqrt,
    "rsqrt": ops.rsqrt,
    "reciprocal": _reciprocal,
    "tanh": numerics.tanh,
    "erf": ops.erf,
    "sigmoid": numerics.sigmoid,
}

# these it lacks, or has many times slower or less exact than the kernels.
_KERNEL_FUNCTIONS = (
    "exp2", "expm1", "log2", "log10", "sin", "cos", "tan", "sinc", "asin", "acos", "atan", "sinh",
    "cosh", "asinh", "acosh", "atanh", "erfc",
)  # fmt: skip


def _sign(x: TensorValue) -> TensorValue:
    zero, one = number(0, x), number(1, x)
    result = ops.where(ops.greater(x, zero), one, zero)
    if x.dtype.is_float() or x.dtype.is_signed_integral():
        result = ops.where(ops.greater(zero, x), number(-1, x), result)
    return result


def _abs(x: TensorValue) -> TensorValue:
    return ops.abs(x) if x.dtype.is_float() or x.dtype.is_signed_integral() else x


def _unless_integer(function: Function) -> Function:
    return lambda x: function(x) if x.dtype.is_float() else x


# Functions whose result has the operand's dtype, integers and bool included.
_SAME_DTYPE_FUNCTIONS: dict[str, Function] = {
    "abs": _abs,
    "neg": numerics.negate,
    "sign": lambda x: x if x.dtype == DType.bool else _sign(x),
    "floor": _unless_integer(ops.floor),
    "ceil": _unless_integer(ops.ceil),
    "round": _unless_integer(ops.round),
    "trunc": _unless_integer(ops.trunc),
}


def _register(name: str, function: Function) -> None:
    def lowering(self: TensorValue) -> TensorValue:
        return function(to_dtype(self, opmath(expected().dtype)))

    lowering.__name__ = name
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", name)
    lowering.__doc__ = f"{name}(Tensor self) -> Tensor"
    kernels = elementary.kernels_on_gpu if name == "tanh" else None
    map_to(getattr(aten, name).default, kernels=kernels)(lowering)


def _register_kernel(name: str) -> None:
    def lowering(self: TensorValue) -> TensorValue:
        return elementary.unary(name, to_dtype(self, expected().dtype))

    lowering.__name__ = name
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", name)
    lowering.__doc__ = f"{name}(Tensor self) -> Tensor"
    packet = getattr(aten, name)
    map_to(packet.default, kernels=elementary.KERNELS, native16=True)(lowering)


for _name in _KERNEL_FUNCTIONS:
    _register_kernel(_name)

for _name, _function in (_FLOAT_FUNCTIONS | _SAME_DTYPE_FUNCTIONS).items():
    _register(_name, _function)


@map_to(aten.round.decimals)
def round_decimals(self: TensorValue, *, decimals: int) -> TensorValue:
    """round.decimals(Tensor self, *, int decimals) -> Tensor"""
    x = to_dtype(self, opmath(expected().dtype))
    if decimals == 0 or not x.dtype.is_float():
        return _unless_integer(ops.round)(x)
    scale = number(10.0 ** abs(decimals), x)
    if decimals > 0:
        return ops.div(ops.round(ops.mul(x, scale)), scale)
    return ops.mul(ops.round(ops.div(x, scale)), scale)


@map_to(aten.isnan.default)
def isnan(self: TensorValue) -> TensorValue:
    """isnan(Tensor self) -> Tensor"""
    return ops.is_nan(self) if self.dtype.is_float() else _all_false(self)


@map_to(aten.isinf.default)
def isinf(self: TensorValue) -> TensorValue:
    """isinf(Tensor self) -> Tensor"""
    return ops.is_inf(self) if self.dtype.is_float() else _all_false(self)


def _all_false(x: TensorValue) -> TensorValue:
    return broadcast(constant(False, DType.bool, x.device), x.shape)
