"""Matrix products. Every one goes through ``product``."""

from __future__ import annotations

import math

import torch
from max.dtype import DType
from max.graph import Dim, StaticDim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.graph.passes import (  # noqa: F401  they define operators
    epilogue_fusion,
    narrow_weights,
)
from torch_max_backend.ops.common import numerics, tf32
from torch_max_backend.ops.common.bank import ACTIVATIONS, nothing, number, routine, unpermuted
from torch_max_backend.ops.common.promotion import constant, full, opmath
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

# Sums of their products wrap as torch's do when they are cut from a wider sum.
_NARROW = frozenset({DType.int8, DType.uint8, DType.int16})


def product(
    a: TensorValue, b: TensorValue, bias: TensorValue | None = None, activation: str = "none"
) -> TensorValue:
    """The matrix product of two values; the one place that decides how it is done.

    Args:
        a: ``[..., M, K]``.
        b: ``[..., K, N]``, of the same rank as ``a``, with the same leading dims; of the dtype of
            ``a``, or int8.
        bias: ``[N]``, added to each row.
        activation: ``relu``, ``gelu``, ``gelu_tanh`` or ``silu`` of the result, by the bank alone.
    """
    b = _alike(b, a)
    if is_empty([*a.shape, *b.shape]):
        result = full(0, a.dtype, [*a.shape[:-1], b.shape[-1]], a.device)
    elif bias is None and activation == "none" and a.shape[-1] == 1 and a.dtype not in _NARROW:
        # An outer product, such as a weight's gradient of one row: nothing is added up.
        return a * ops.cast(b, a.dtype)
    else:
        addresses = routine(a.dtype, a.device)
        if addresses is not None and a.shape[:-2] == b.shape[:-2]:
            return _by_bank(a, b, bias, addresses, activation)
        assert activation == "none", "the bank's kernel alone has activations"
        b = ops.cast(b, a.dtype)
        result = _by_max(a, b)
    return result if bias is None else result + bias


def _alike(b: TensorValue, a: TensorValue) -> TensorValue:
    """``b`` with the leading dims of ``a``, which may be the same in another form."""
    pairs = list(zip(a.shape[:-2], b.shape[:-2], strict=True))
    known = all(isinstance(d, StaticDim) for pair in pairs for d in pair)
    if known or all(x == y for x, y in pairs):
        return b
    return ops.rebind(b, [*a.shape[:-2], *b.shape[-2:]], "the batches of a product are not alike")


def _by_max(a: TensorValue, b: TensorValue) -> TensorValue:
    if tf32.rounds(a):
        return tf32.product(a, b)
    wide = a.dtype
    if wide in _NARROW:
        wide = DType.int32
    elif wide == DType.float16 and a.device.is_cpu():
        wide = DType.float32
    return ops.cast(ops.matmul(ops.cast(a, wide), ops.cast(b, wide)), a.dtype)


def _by_bank(
    a: TensorValue,
    b: TensorValue,
    bias: TensorValue | None,
    addresses: list[TensorValue],
    activation: str,
) -> TensorValue:
    """The kernel of ``mojo_kernels/gemm/matmul.mojo``."""
    leading = a.shape[:-2]
    shape = [*leading, a.shape[-2], b.shape[-1]]
    batch = math.prod(leading, start=Dim(1))
    swapped = [*range(a.rank - 2), a.rank - 1, a.rank - 2]
    plain_a, plain_b = unpermuted(a, swapped), unpermuted(b, swapped)
    operands = [
        ops.reshape(value, [batch, *value.shape[-2:]])
        for value in (a if plain_a is None else plain_a, b if plain_b is None else plain_b)
    ]
    parameters = {}
    if a.dtype == b.dtype == DType.float32 and current_node().precision != "ieee":
        parameters["precision"] = current_node().precision
    result = ops.custom(
        "tmb_matmul",
        a.device,
        [
            *operands,
            nothing(a.dtype) if bias is None else bias,
            *addresses,
            number(plain_a is not None),
            number(plain_b is not None),
            number(ACTIVATIONS.index(activation)),
        ],
        [TensorType(a.dtype, [batch, *shape[-2:]], a.device)],
        parameters,
    )[0]
    return ops.reshape(result.tensor, shape)


def _one_dtype(
    self: torch.Tensor,
    mat2: torch.Tensor | None = None,
    mat1: torch.Tensor | None = None,
    batch1: torch.Tensor | None = None,
    batch2: torch.Tensor | None = None,
    mat: torch.Tensor | None = None,
    vec: torch.Tensor | None = None,
) -> Refusal | None:
    for other in (mat1, mat2, batch1, batch2, mat, vec):
        if other is not None and other.dtype != self.dtype:
            kinds = f"{self.dtype} and {other.dtype}"
            return Refusal(f"torch multiplies no matrices of {kinds}; convert one of them")
    return None


@map_to(aten.mm.default, supports=_one_dtype, native16=True, bank=True)
def mm(self: TensorValue, mat2: TensorValue) -> TensorValue:
    """mm(Tensor self, Tensor mat2) -> Tensor"""
    return product(self, mat2)


@map_to(torch.ops.torch_max_backend.narrow_mm.default, native16=True, bank=True)
def narrow_mm(mat1: TensorValue, mat2: TensorValue) -> TensorValue:
    """``mat1 @ mat2.to(mat1.dtype)`` of an int8 ``mat2`` (``graph/passes/narrow_weights.py``)."""
    return product(mat1, mat2)


@map_to(aten.bmm.default, supports=_one_dtype, native16=True, bank=True)
def bmm(self: TensorValue, mat2: TensorValue) -> TensorValue:
    """bmm(Tensor self, Tensor mat2) -> Tensor"""
    return product(self, mat2)


@map_to(aten.addmm.default, supports=_one_dtype, native16=True, bank=True)
def addmm(
    self: TensorValue,
    mat1: TensorValue,
    mat2: TensorValue,
    *,
    beta: int | float = 1,
    alpha: int | float = 1,
) -> TensorValue:
    """addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    fits = self.rank == 1 and self.shape[0] == mat2.shape[1] and self.dtype == mat1.dtype
    if fits and beta == alpha == 1:
        return product(mat1, mat2, self)
    return _scaled_sum(self, product(mat1, mat2), beta, alpha)


@map_to(aten._addmm_activation.default, supports=_one_dtype, bank=True)
def addmm_activation(
    self: TensorValue,
    mat1: TensorValue,
    mat2: TensorValue,
    *,
    beta: int | float = 1,
    alpha: int | float = 1,
    use_gelu: bool = False,
) -> TensorValue:
    """_addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1,
    bool use_gelu=False) -> Tensor"""
    total = _scaled_sum(self, product(mat1, mat2), beta, alpha)
    return ops.gelu(total) if use_gelu else numerics.relu(total)


@map_to(torch.ops.torch_max_backend.fused_addmm.default, bank=True)
def fused_addmm(
    self: TensorValue | None, mat1: TensorValue, mat2: TensorValue, activation: str
) -> TensorValue:
    """``activation(mat1 @ mat2 + self)`` (``graph/passes/epilogue_fusion.py``)."""
    return product(mat1, mat2, self, activation)


@map_to(aten.baddbmm.default, supports=_one_dtype, native16=True, bank=True)
def baddbmm(
    self: TensorValue,
    batch1: TensorValue,
    batch2: TensorValue,
    *,
    beta: int | float = 1,
    alpha: int | float = 1,
) -> TensorValue:
    """baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)
    -> Tensor"""
    return _scaled_sum(self, product(batch1, batch2), beta, alpha)


@map_to(aten.addbmm.default, supports=_one_dtype, native16=True, bank=True)
def addbmm(
    self: TensorValue,
    batch1: TensorValue,
    batch2: TensorValue,
    *,
    beta: int | float = 1,
    alpha: int | float = 1,
) -> TensorValue:
    """addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)
    -> Tensor"""
    # The sum over the batch is one long inner dimension.
    batch, rows, inner = batch1.shape
    left = ops.reshape(ops.permute(batch1, [1, 0, 2]), [rows, batch * inner])
    right = ops.reshape(batch2, [batch * inner, batch2.shape[2]])
    return _scaled_sum(self, product(left, right), beta, alpha)


@map_to(aten.addmv.default, supports=_one_dtype)
def addmv(
    self: TensorValue,
    mat: TensorValue,
    vec: TensorValue,
    *,
    beta: int | float = 1,
    alpha: int | float = 1,
) -> TensorValue:
    """addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor"""
    # A sum of products fuses, and costs a fraction of a matrix product to compile.
    result = ops.reshape(ops.sum(mat * vec, -1), [mat.shape[0]])
    return _scaled_sum(self, result, beta, alpha)


def _scaled_sum(
    added: TensorValue, result: TensorValue, beta: int | float, alpha: int | float
) -> TensorValue:
    dtype = expected().dtype
    # 16-bit: round once, after the addition.
    working = opmath(dtype)
    if alpha != 1:
        result = ops.cast(result, working) * constant(alpha, working, result.device)
    if beta != 0:
        # With beta = 0 torch ignores even NaN in the added tensor.
        added = ops.cast(added, working)
        if beta != 1:
            added = added * constant(beta, working, result.device)
        result = ops.cast(result, working) + added
    return ops.cast(result, dtype)
