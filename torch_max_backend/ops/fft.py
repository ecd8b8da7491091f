"""Fourier transforms of lines, by the kernel of ``mojo_kernels/fft/fft.mojo``.

Complex numbers have no dtype here: ``graph/passes/complex_pairs.py`` makes pairs of them, and of
ATen's transforms those of ``graph/decompositions/fft_operators.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from max.graph import Dim, TensorType, TensorValue, ops

import torch_max_backend.graph.decompositions.fft_operators  # noqa: F401  defines the operators
from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.bank import number
from torch_max_backend.ops.common.positions import is_zero, product
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.registry.lowerings import Refusal, map_to

own = torch.ops.torch_max_backend

_FLOATS = (torch.float32, torch.float64)


def _supports_pairs(pairs: torch.Tensor) -> Refusal | None:
    return _refusal(pairs)


def _supports_real(self: torch.Tensor) -> Refusal | None:
    return _refusal(self)


def _refusal(x: torch.Tensor) -> Refusal | None:
    if x.dtype not in _FLOATS:
        return Refusal("Fourier transforms are of float32 and float64")
    return None


@map_to(own.fft_c2c.default, supports=_supports_pairs, kernels="fft.fft")
def fft_c2c(pairs: TensorValue, normalization: int, forward: bool, dims: int = 1) -> TensorValue:
    """fft_c2c(Tensor pairs, int normalization, bool forward, int dims=1) -> Tensor"""
    size = pairs.shape[pairs.rank - 2]
    lines = ops.reshape(pairs, [product(pairs.shape[:-2]), size * 2])
    height = _height(pairs.shape[:-1], dims)
    return _transformed(lines, size, size * 2, "c2c", normalization, not forward, height)


@map_to(own.fft_c2c_columns.default, supports=_supports_pairs, kernels="fft.fft")
def fft_c2c_columns(pairs: TensorValue, dim: int, normalization: int, forward: bool) -> TensorValue:
    """fft_c2c_columns(Tensor pairs, int dim, int normalization, bool forward) -> Tensor"""
    shape = pairs.shape
    if any(is_zero(s) for s in shape):
        return full(0, pairs.dtype, shape, pairs.device)
    rows = [product(shape[:dim]), shape[dim], product(shape[dim + 1 :])]
    (result,) = ops.custom(
        "tmb_fft_columns",
        pairs.device,
        [ops.reshape(pairs, rows), number(normalization)],
        [TensorType(pairs.dtype, rows, pairs.device)],
        {"inverse": not forward},
    )
    return ops.reshape(result.tensor, shape)


def _supports_real_parts(pairs: torch.Tensor) -> Refusal | None:
    if pairs.device.type != "cpu":
        return Refusal("real parts of inverse transforms are for CPU")
    return _refusal(pairs)


@map_to(own.fft_c2c_real.default, supports=_supports_real_parts, kernels="fft.fft")
def fft_c2c_real(pairs: TensorValue, normalization: int, dims: int = 1) -> TensorValue:
    """fft_c2c_real(Tensor pairs, int normalization, int dims=1) -> Tensor"""
    size = pairs.shape[pairs.rank - 2]
    lines = ops.reshape(pairs, [product(pairs.shape[:-2]), size * 2])
    height = _height(pairs.shape[:-1], dims)
    return _transformed(lines, size, size, "c2c_real", normalization, True, height)


@map_to(own.fft_r2c.default, supports=_supports_real, kernels="fft.fft")
def fft_r2c(self: TensorValue, normalization: int, onesided: bool, dims: int = 1) -> TensorValue:
    """fft_r2c(Tensor self, int normalization, bool onesided, int dims=1) -> Tensor"""
    size = self.shape[self.rank - 1]
    lines = ops.reshape(self, [product(self.shape[:-1]), size])
    kind, count = ("r2c", size // 2 + 1) if onesided else ("r2c_full", size)
    height = _height(self.shape, dims)
    return _transformed(lines, size, count * 2, kind, normalization, False, height)


@map_to(own.fft_c2r.default, supports=_supports_pairs, kernels="fft.fft")
def fft_c2r(pairs: TensorValue, normalization: int, size: int | Dim, dims: int = 1) -> TensorValue:
    """fft_c2r(Tensor pairs, int normalization, SymInt size, int dims=1) -> Tensor"""
    count = pairs.shape[pairs.rank - 2]
    lines = ops.reshape(pairs, [product(pairs.shape[:-2]), count * 2])
    height = _height(pairs.shape[:-1], dims)
    return _transformed(lines, size, Dim(size), "c2r", normalization, True, height)


def _height(shape: Sequence[Dim], dims: int) -> int:
    """How many lines are an image that is transformed along both axes."""
    return int(shape[-2]) if dims == 2 else 1


def _transformed(
    lines: TensorValue,
    size: int | Dim,
    row: Dim,
    kind: str,
    normalization: int,
    inverse: bool,
    height: int,
) -> TensorValue:
    """The transform of ``[lines, numbers]``: rows of ``row`` numbers, in the expected shape."""
    shape = expected().shape
    if any(is_zero(s) for s in shape) or is_zero(lines.shape[0]):
        return full(0, lines.dtype, shape, lines.device)
    device, count = lines.device, lines.shape[0]
    # The kernel for CPU keeps its scratch to itself.
    pairs = Dim(0) if device.is_cpu() else count * size * 2
    roots = Dim(0) if device.is_cpu() else Dim(size) * 2
    results = ops.custom(
        "tmb_fft",
        device,
        [lines, number(normalization), number(height)],
        [TensorType(lines.dtype, s, device) for s in ([count, row], [pairs], [pairs], [roots])],
        {"kind": kind, "inverse": inverse},
    )
    return ops.reshape(results[0].tensor, shape)
