"""Comparisons and logic."""

from __future__ import annotations

from collections.abc import Callable

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.ops.common import numerics
from torch_max_backend.ops.common.promotion import (
    Operand,
    operands,
    opmath,
    result_type,
    to_dtype,
)
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten
Function = Callable[[TensorValue, TensorValue], TensorValue]


def _reflexive(function: Function) -> Function:
    """A comparison that holds between equal values, NaN excepted."""

    def compare(a: TensorValue, b: TensorValue) -> TensorValue:
        result = function(a, b)
        return numerics.unless_nan(result, a) if a.dtype.is_float() else result

    return compare


def _eq(a: TensorValue, b: TensorValue) -> TensorValue:
    return _reflexive(ops.equal)(a, b)


# MAX has no less-than: the operands change places.
_COMPARISONS: dict[str, Function] = {
    "eq": _eq,
    "ne": lambda a, b: ops.logical_not(_eq(a, b)),
    "gt": ops.greater,
    "ge": _reflexive(ops.greater_equal),
    "lt": lambda a, b: ops.greater(b, a),
    "le": _reflexive(lambda a, b: ops.greater_equal(b, a)),
}

_LOGIC: dict[str, Function] = {
    "logical_and": ops.logical_and,
    "logical_or": ops.logical_or,
    "logical_xor": ops.logical_xor,
}


def _comparable(self: Operand, other: Operand) -> list[TensorValue]:
    """The operands in their common dtype: numbers are rounded to it first, as in torch."""
    dtype = result_type(self, other)
    wide = DType.uint8 if dtype == DType.bool else opmath(dtype)
    return [to_dtype(v, wide) for v in operands(dtype, self, other)]


def _register_comparison(name: str, function: Function) -> None:
    def lowering(self: Operand, other: Operand) -> TensorValue:
        return function(*_comparable(self, other))

    lowering.__name__ = name
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", name)
    lowering.__doc__ = f"{name}.Tensor(Tensor self, Tensor other) -> Tensor"
    packet = getattr(aten, name)
    map_to(packet.Tensor, packet.Scalar, native16=True)(lowering)


def _register_logic(name: str, function: Function) -> None:
    def lowering(self: Operand, other: Operand) -> TensorValue:
        return function(*operands(DType.bool, self, other))

    lowering.__name__ = name
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", name)
    lowering.__doc__ = f"{name}(Tensor self, Tensor other) -> Tensor"
    map_to(getattr(aten, name).default)(lowering)


for _name, _function in _COMPARISONS.items():
    _register_comparison(_name, _function)
for _name, _function in _LOGIC.items():
    _register_logic(_name, _function)


@map_to(aten.logical_not.default)
def logical_not(self: TensorValue) -> TensorValue:
    """logical_not(Tensor self) -> Tensor"""
    return ops.logical_not(to_dtype(self, DType.bool))
