"""Matrix products with weights of few bits, which no dequantized copy is made of."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from torch_max_backend.graph.passes import narrow_weights  # noqa: F401  it defines an operator
from torch_max_backend.ops.common.bank import nothing, number, unpermuted
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

# Columns that torch packs together (``weight_to_int4pack_kernel`` in ATen), by what it finds the
# processor capable of.
_INT4_BLOCKS = {"AVX512": 64, "AVX2": 32}


def _on_cpu(self: torch.Tensor, mat2: torch.Tensor) -> Refusal | None:
    if self.device.type != "cpu":
        return Refusal("weights of few bits are multiplied on CPU only")
    return None


@map_to(aten._weight_int8pack_mm.default, supports=_on_cpu, native16=True, kernels="gemm.quantized")
def weight_int8pack_mm(self: TensorValue, mat2: TensorValue, scales: TensorValue) -> TensorValue:
    """_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales) -> Tensor

    ``self [M, K]``, ``mat2 [N, K]`` of int8, ``scales [N]`` of the dtype of ``self``: ``(self @
    mat2.T) * scales``, added up and scaled in float32, rounded once.
    """
    shape = [self.shape[0], mat2.shape[0]]
    if is_empty([*self.shape, *mat2.shape]):
        return full(0, self.dtype, shape, self.device)
    return _scaled(nothing(self.dtype), self, mat2, scales, "int8", True)


@map_to(torch.ops.torch_max_backend.scaled_mm.default, native16=True, kernels="gemm.quantized")
def scaled_mm(
    self: TensorValue | None, mat1: TensorValue, mat2: TensorValue, scales: TensorValue, kind: str
) -> TensorValue:
    """``self + mat1 @ (mat2 * scales)`` of weights ``mat2 [K, N]`` of 8 bits and ``scales [N]``
    (``graph/passes/narrow_weights.py``), rounded once."""
    shape = [mat1.shape[0], mat2.shape[1]]
    bias = nothing(mat1.dtype) if self is None else self
    if is_empty([*mat1.shape, *mat2.shape]):
        none = full(0, mat1.dtype, shape, mat1.device)
        return none if self is None else ops.broadcast_to(self, shape)
    plain = unpermuted(mat2, [1, 0])
    if plain is None:
        return _scaled(bias, mat1, mat2, scales, kind, False)
    return _scaled(bias, mat1, plain, scales, kind, True)


def _scaled(
    bias: TensorValue,
    a: TensorValue,
    b: TensorValue,
    scales: TensorValue,
    kind: str,
    transposed_b: bool,
) -> TensorValue:
    (found,) = ops.custom(
        "tmb_scaled_matmul",
        a.device,
        [a, b, scales, bias, number(transposed_b)],
        [TensorType(a.dtype, [a.shape[0], b.shape[0 if transposed_b else 1]], a.device)],
        {"kind": kind},
    )
    return found.tensor


def _packed_as_known(self: torch.Tensor, mat2: torch.Tensor, qGroupSize: int) -> Refusal | None:
    if torch.backends.cpu.get_cpu_capability() not in _INT4_BLOCKS:
        return Refusal("torch packs weights of 4 bits in another way on this processor")
    return _on_cpu(self, mat2)


@map_to(
    aten._weight_int4pack_mm_for_cpu.default,
    supports=_packed_as_known,
    native16=True,
    kernels="gemm.quantized",
)
def weight_int4pack_mm_for_cpu(
    self: TensorValue, mat2: TensorValue, qGroupSize: int, qScaleAndZeros: TensorValue
) -> TensorValue:
    """_weight_int4pack_mm_for_cpu(Tensor self, Tensor mat2, int qGroupSize,
    Tensor qScaleAndZeros) -> Tensor

    ``self [M, K]``, ``mat2 [N, K / 2]`` bytes as ``aten._convert_weight_to_int4pack_for_cpu`` makes
    them, ``qScaleAndZeros [K / qGroupSize, N, 2]`` of the dtype of ``self``.
    """
    shape = [self.shape[0], mat2.shape[0]]
    if is_empty([*self.shape, *mat2.shape]):
        return full(0, self.dtype, shape, self.device)
    (found,) = ops.custom(
        "tmb_int4_matmul",
        self.device,
        [self, mat2, qScaleAndZeros, number(qGroupSize)],
        [TensorType(self.dtype, shape, self.device)],
        {"block": _INT4_BLOCKS[torch.backends.cpu.get_cpu_capability()]},
    )
    return found.tensor


@map_to(aten._int_mm.default, supports=_on_cpu, kernels="gemm.quantized")
def int_mm(self: TensorValue, mat2: TensorValue) -> TensorValue:
    """_int_mm(Tensor self, Tensor mat2) -> Tensor

    ``self [M, K]`` of int8 or uint8, ``mat2 [K, N]`` of int8; the result is int32.
    """
    shape = [self.shape[0], mat2.shape[1]]
    if is_empty([*self.shape, *mat2.shape]):
        return full(0, DType.int32, shape, self.device)
    plain = unpermuted(mat2, [1, 0])
    (found,) = ops.custom(
        "tmb_integer_matmul",
        self.device,
        [self, mat2 if plain is None else plain, number(plain is not None)],
        [TensorType(DType.int32, shape, self.device)],
    )
    return found.tensor
