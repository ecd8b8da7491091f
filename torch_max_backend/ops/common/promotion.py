"""torch's type promotion for MAX values. MAX itself never widens: it raises instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, Graph, TensorValue, ops
from torch.fx import Node

from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.max_dtypes import SIXTEEN_BIT_FLOATS, max_dtype, torch_dtype

Number = bool | int | float
Operand: TypeAlias = TensorValue | Number

_CATEGORY = {bool: 0, int: 1, float: 2}


def _category(dtype: DType) -> int:
    if dtype == DType.bool:
        return 0
    return 2 if dtype.is_float() else 1


def result_type(*operands: Operand) -> DType:
    """``torch.result_type`` of MAX values and Python numbers.

    Tensors with dims outrank 0-d tensors, which outrank Python numbers; a lower rank matters only
    where its category (bool < integer < floating point) is higher.
    """
    ranked: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, TensorValue):
            level, dtype = (0 if operand.rank > 0 else 1), operand.dtype
        else:
            kind = type(operand)
            default = max_dtype(torch.get_default_dtype())
            level, dtype = 2, {bool: DType.bool, int: DType.int64, float: default}[kind]
        ranked[level] = dtype if ranked[level] is None else _promote(ranked[level], dtype)
    result: DType | None = None
    for dtype in ranked:
        if dtype is not None and (result is None or _category(dtype) > _category(result)):
            result = dtype
    assert result is not None
    return result


def _promote(a: DType | None, b: DType) -> DType:
    assert a is not None
    return max_dtype(torch.promote_types(torch_dtype(a), torch_dtype(b)))


def computing_dtype(dtype: DType, device: DeviceRef) -> DType:
    """The dtype to compute in: float32 for 16-bit floats on CPU, where MAX's kernels for them are
    missing or worse; the converter rounds the result."""
    return DType.float32 if dtype in SIXTEEN_BIT_FLOATS and device.is_cpu() else dtype


def opmath(dtype: DType) -> DType:
    """The dtype that elementwise arithmetic of ``dtype`` is done in, on any device: torch widens
    16-bit floats inside its kernels too, and MAX fuses the casts."""
    return DType.float32 if dtype in SIXTEEN_BIT_FLOATS else dtype


def working_dtype(index: int = 0) -> DType:
    """The dtype to compute output ``index`` of the node under conversion in."""
    spec = expected(index)
    return computing_dtype(spec.dtype, spec.device)


def to_dtype(value: TensorValue, dtype: DType) -> TensorValue:
    """Cast as torch does; to bool, all but zero is true (NaN too, which MAX's cast drops)."""
    if value.dtype == dtype:
        return value
    if value.dtype in SIXTEEN_BIT_FLOATS and dtype != DType.float32:
        value = ops.cast(value, DType.float32)
    if dtype == DType.bool:
        # MAX's not_equal is false for NaN.
        return ops.logical_not(ops.equal(value, constant(0, value.dtype, value.device)))
    if dtype in SIXTEEN_BIT_FLOATS and value.dtype != DType.float32:
        value = ops.cast(value, DType.float32)
    return ops.cast(value, dtype)


def constant(number: Number, dtype: DType, device: DeviceRef) -> TensorValue:
    """A 0-d constant of any dtype, converted as torch does: towards zero and wrapping around for
    integers, to infinity beyond the range of floats."""
    if dtype == DType.bool:
        return ops.constant(bool(number), dtype, device)
    if not dtype.is_float():
        return ops.constant(_wrapped(int(number), dtype), dtype, device)
    if dtype in SIXTEEN_BIT_FLOATS:
        rounded = torch.tensor(number, dtype=torch_dtype(dtype)).item()
        if math.isfinite(rounded):
            return ops.constant(rounded, dtype, device)
        return ops.cast(constant(number, DType.float32, device), dtype)
    if dtype == DType.float32:
        with np.errstate(over="ignore"):
            number = float(np.float32(number))
    return ops.constant(float(number), dtype, device)


def _wrapped(number: int, dtype: DType) -> int:
    span = 1 << (8 * dtype.size_in_bytes)
    number %= span
    return number - span if dtype.is_signed_integral() and 2 * number >= span else number


def as_operand(operand: Operand, dtype: DType, device: DeviceRef | None = None) -> TensorValue:
    """A MAX value of ``dtype`` for a tensor or a Python number, on ``device`` (by default where
    the node under conversion has its output). A CPU 0-d tensor beside a GPU one is moved, as in
    torch."""
    device = device or expected().device
    if not isinstance(operand, TensorValue):
        return constant(operand, dtype, device)
    if operand.device != device:
        operand = ops.transfer_to(operand, device)
    return to_dtype(operand, dtype)


def operands(dtype: DType, *values: Operand) -> list[TensorValue]:
    """MAX values of ``dtype`` for the operands of an elementwise operator, where the node under
    conversion has its output and ready to be broadcast."""
    return [aligned(as_operand(value, dtype)) for value in values]


def aligned(value: TensorValue) -> TensorValue:
    """``value`` under the names of the sizes it is broadcast to: torch may have proved sizes equal
    that MAX takes for different ones."""
    shape = expected().shape[expected().rank - value.rank :]
    renamed = [d if d in (s, 1) else s for d, s in zip(value.shape, shape, strict=True)]
    same = all(d == s for d, s in zip(value.shape, renamed, strict=True))
    return value if same else ops.rebind(value, renamed)


def broadcast(value: TensorValue, shape: Sequence[int | Dim]) -> TensorValue:
    """``value`` broadcast to ``shape`` unless it has that shape already."""
    same = value.rank == len(shape) and all(d == s for d, s in zip(value.shape, shape, strict=True))
    return value if same else ops.broadcast_to(value, list(shape))


_FILLS = {
    torch.ops.aten.full.default: 1,
    torch.ops.aten.full_like.default: 1,
    torch.ops.aten.scalar_tensor.default: 0,
}


def is_zero(position: int) -> bool:
    """Whether positional argument ``position`` of the node under conversion is known to be 0
    everywhere (MAX folds what is done with such constants, and loses NaN)."""
    given = current_node().node.args
    value = given[position] if position < len(given) else None
    while isinstance(value, Node) and value.target in _FILLS:
        value = value.args[_FILLS[value.target]]
    return isinstance(value, (bool, int, float)) and value == 0


def same_operand() -> bool:
    """Whether the first two arguments of the node under conversion are one value."""
    given = current_node().node.args
    return len(given) > 1 and isinstance(given[0], Node) and given[0] is given[1]


def full(
    number: Operand, dtype: DType, shape: Sequence[int | Dim], device: DeviceRef
) -> TensorValue:
    """A tensor of one value, made by broadcasting a scalar so that no artifact holds it whole."""
    made = ops.broadcast_to(as_operand(number, dtype, device), list(shape))
    if isinstance(number, (int, float)) and number == 0:
        _zeros().add(made._mlir_value)
    return made


def is_zeros(value: TensorValue) -> bool:
    """Whether ``full`` has made it of zeros, in the graph or part of a graph that is being
    built."""
    return value._mlir_value in _zeros()


def _zeros() -> set[Any]:
    return Graph.current.__dict__.setdefault("zeros", set())
