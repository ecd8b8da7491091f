"""Bitwise operators. Those of bool are logic; MAX has none for integers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.convert.registry import Refusal, map_to
from torch_max_backend.ops.common.numerics import number
from torch_max_backend.ops.common.promotion import Operand, operands

aten = torch.ops.aten
Function = Callable[[TensorValue, TensorValue], TensorValue]

_BITWISE: dict[str, Function] = {
    "bitwise_and": ops.logical_and,
    "bitwise_or": ops.logical_or,
    "bitwise_xor": ops.logical_xor,
}


def _bool_only(self: object, other: object) -> Refusal | None:
    if torch.result_type(self, other) == torch.bool:
        return None
    return Refusal("MAX has no bitwise operators on integers (those on bool are converted)")


def _register(name: str, function: Function) -> None:
    def lowering(self: Operand, other: Operand) -> TensorValue:
        return function(*operands(DType.bool, self, other))

    lowering.__name__ = name
    lowering.__qualname__ = lowering.__qualname__.replace("lowering", name)
    lowering.__doc__ = f"{name}.Tensor(Tensor self, Tensor other) -> Tensor"
    packet = getattr(aten, name)
    map_to(packet.Tensor, packet.Scalar, packet.Scalar_Tensor, supports=_bool_only)(lowering)


for _name, _function in _BITWISE.items():
    _register(_name, _function)


@map_to(aten.bitwise_not.default)
def bitwise_not(self: TensorValue) -> TensorValue:
    """bitwise_not(Tensor self) -> Tensor"""
    if expected().dtype == DType.bool:
        return ops.logical_not(self)
    # Two's complement: all bits set, minus x.
    return ops.sub(number(-1, self), self)
