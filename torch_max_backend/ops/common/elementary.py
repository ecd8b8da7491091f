"""Elementwise functions by kernels of ``mojo_kernels/elementwise/unary.mojo``.

What computes their arguments is fused into them, what follows is not: these are for functions that
MAX lacks, or has many times slower or less exact. Lowerings that call them are registered with
``kernels=KERNELS``.
"""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.promotion import Number, Operand, broadcast, operands

KERNELS = "elementwise.unary"
_PLAIN_ON_GPU = frozenset({torch.float16, torch.bfloat16, torch.float64})


def kernels_on_gpu(self: torch.Tensor) -> str | None:
    """The library of functions that MAX has, but on GPUs not in the precision of float32."""
    return KERNELS if self.is_cuda and self.dtype not in _PLAIN_ON_GPU else None


def unary(kind: str, x: TensorValue) -> TensorValue:
    """A function of the floats ``x``, of any width."""
    return ops.custom("tmb_unary", x.device, [x], [x.type], {"kind": kind})[0].tensor


def binary(kind: str, dtype: DType, a: Operand, b: Operand) -> TensorValue:
    """A function of two operands in ``dtype``, with the shape of the node's output."""
    if not isinstance(b, TensorValue):
        return _beside_number(kind, operands(dtype, a)[0], b, first=False)
    if not isinstance(a, TensorValue):
        return _beside_number(kind, operands(dtype, b)[0], a, first=True)
    x, y = (broadcast(value, expected().shape) for value in operands(dtype, a, b))
    return ops.custom("tmb_binary", x.device, [x, y], [x.type], {"kind": kind})[0].tensor


def _beside_number(kind: str, x: TensorValue, number: Number, *, first: bool) -> TensorValue:
    scalar = ops.constant(float(number), DType.float64, DeviceRef.CPU())
    settings = {"kind": kind, "first": first}
    x = broadcast(x, expected().shape)
    return ops.custom("tmb_binary_scalar", x.device, [x, scalar], [x.type], settings)[0].tensor


def converted(name: str, dtype: DType, *values: TensorValue) -> TensorValue:
    """The result, of another dtype, of the kernel ``name``."""
    kind = TensorType(dtype, values[0].shape, values[0].device)
    return ops.custom(name, values[0].device, list(values), [kind])[0].tensor
