"""Random integers without bias, by a kernel of ``mojo_kernels/random/integers.mojo``."""

from __future__ import annotations

from typing import Any

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.draws import (
    Sizes,
    default_generator,
    draw_each,
    integer,
    tensor,
)
from torch_max_backend.ops.common.promotion import full, to_dtype, working_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


# The default of the schema arrives as torch's number for int64.


def _bounds(
    dtype: torch.dtype | int | None, self: torch.Tensor | None, *ends: Any
) -> Refusal | None:
    default = torch.int64 if self is None else self.dtype
    kind = dtype if isinstance(dtype, torch.dtype) else default
    known = [e for e in ends if isinstance(e, int)]
    if kind.is_floating_point and any(abs(e) > torch.finfo(kind).max for e in known):
        return Refusal(f"bounds beyond the range of {kind}")
    return None


def _below(
    high: Any,
    self: torch.Tensor | None = None,
    low: Any = 0,
    dtype: torch.dtype | int | None = None,
    generator: torch.Generator | None = None,
) -> Refusal | None:
    return _bounds(dtype, self, low, high) or default_generator(generator)


def _integers(low: int | Dim, last: TensorValue) -> TensorValue:
    spec = expected()
    dtype = working_dtype()
    if is_empty(spec.shape):
        return full(0, dtype, spec.shape, spec.device)
    return draw_each("tmb_randint", [tensor(dtype)], numbers=[integer(low), last])[0]


@map_to(
    aten.randint.default,
    aten.randint.generator,
    supports=_below,
    kernels="random.integers",
    random=True,
)
def randint(
    high: int | Dim,
    size: Sizes,
    *,
    generator: Any = None,
    dtype: DType | int | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randint(SymInt high, SymInt[] size, *, ScalarType? dtype=long) -> Tensor"""
    return _integers(0, integer(high - 1))


@map_to(
    aten.randint.low,
    aten.randint.low_generator,
    supports=_below,
    kernels="random.integers",
    random=True,
)
def randint_low(
    low: int | Dim,
    high: int | Dim,
    size: Sizes,
    *,
    generator: Any = None,
    dtype: DType | int | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randint.low(SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=long) -> Tensor"""
    return _integers(low, integer(high - 1))


@map_to(
    aten.randint_like.default,
    aten.randint_like.generator,
    supports=_below,
    kernels="random.integers",
    random=True,
)
def randint_like(
    self: TensorValue,
    high: int | Dim,
    *,
    generator: Any = None,
    dtype: DType | int | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randint_like(Tensor self, SymInt high, *, ScalarType? dtype=None) -> Tensor"""
    return _integers(0, integer(high - 1))


@map_to(
    aten.randint_like.low_dtype,
    aten.randint_like.low_generator_dtype,
    supports=_below,
    kernels="random.integers",
    random=True,
)
def randint_like_low(
    self: TensorValue,
    low: int | Dim,
    high: int | Dim,
    *,
    generator: Any = None,
    dtype: DType | int | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randint_like.low_dtype(Tensor self, SymInt low, SymInt high) -> Tensor"""
    return _integers(low, integer(high - 1))


@map_to(
    aten.randint_like.Tensor,
    aten.randint_like.Tensor_generator,
    supports=_below,
    kernels="random.integers",
    random=True,
)
def randint_like_tensor(
    self: TensorValue,
    high: TensorValue,
    *,
    generator: Any = None,
    dtype: DType | int | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randint_like.Tensor(Tensor self, Tensor high, *, ScalarType? dtype=None) -> Tensor"""
    last = to_dtype(ops.reshape(high, []), DType.int64) - integer(1).to(high.device)
    return _integers(0, last.to(DeviceRef.CPU()))
