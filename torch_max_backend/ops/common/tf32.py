"""Products of float32 on GPUs, where MAX rounds operands to TF32, whose significand has 11 bits.

Torch does so where ``torch.set_float32_matmul_precision`` allows it, and not by default.
"""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import Dim, StaticDim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import current_node
from torch_max_backend.ops.common.bank import unpermuted

PARTS = 3


def rounds(a: TensorValue) -> bool:
    """Whether MAX would round the operands of a product, and they may not be rounded."""
    if a.dtype != DType.float32 or a.device.is_cpu() or torch.version.hip:
        return False  # AMD's units take float32
    return current_node().precision == "ieee"


def product(a: TensorValue, b: TensorValue) -> TensorValue:
    """The matrix product of two values on a GPU, to the precision of float32.

    Each operand is a sum of two numbers of TF32. Three products of these, as one with three times
    the inner size, are the whole but for the least one, which is at most 2**-22 of it.

    Args:
        a: ``[..., M, K]`` in float32.
        b: ``[..., K, N]`` in float32, with the same leading dims.
    """
    leading = a.shape[:-2]
    if any(d != 1 for d in leading):
        return ops.matmul(a, b)  # MAX 26.7 does not round the operands of batched products
    rows, columns = a.shape[-2], b.shape[-1]
    shape = [*leading, rows, columns]
    b = _matrix(b)
    if any(isinstance(d, StaticDim) and d == 1 for d in (rows, columns)):
        return ops.reshape(ops.matmul(_matrix(a), b), shape)  # nor those with a vector
    left = _parts(_matrix(a), right=False, inner=True)
    turned = unpermuted(b, [1, 0])
    if turned is None:
        right = _parts(b, right=True, inner=False)
    else:
        right = ops.transpose(_parts(turned, right=True, inner=True), 0, 1)
    return ops.reshape(ops.matmul(left, right), shape)


def _matrix(x: TensorValue) -> TensorValue:
    return x if x.rank == 2 else ops.reshape(x, x.shape[-2:])


def _parts(x: TensorValue, *, right: bool, inner: bool) -> TensorValue:
    """A matrix ``[R, C]`` as ``[R, 3 C]`` with ``inner``, or else ``[3 R, C]``."""
    rows, columns = x.shape
    apart = [rows, Dim(PARTS), columns] if inner else [Dim(PARTS), rows, columns]
    together = [rows, columns * PARTS] if inner else [rows * PARTS, columns]
    kind = TensorType(DType.float32, apart, x.device)
    settings = {"right": right, "inner": inner}
    made = ops.custom("tmb_tf32_operand", x.device, [x], [kind], settings)
    return ops.reshape(made[0].tensor, together)
