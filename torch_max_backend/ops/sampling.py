"""Permutations, samples and counts, by kernels of ``mojo_kernels/random/sampling.mojo``
and ``multinomial.mojo``."""

from __future__ import annotations

from typing import Any

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.max_dtypes import torch_dtype
from torch_max_backend.ops.common.draws import default_generator, draw, draw_each, tensor
from torch_max_backend.ops.common.promotion import (
    broadcast,
    full,
    operands,
    opmath,
    to_dtype,
    working_dtype,
)
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

# The kernel draws positions from words of 32 bits.
_LONGEST = 1 << 32


def _most(dtype: torch.dtype) -> int:
    """The longest permutation whose numbers a dtype holds."""
    if dtype.is_floating_point:
        return min(_LONGEST, int(2 / torch.finfo(dtype).eps) + 1)
    return min(_LONGEST, 2 if dtype == torch.bool else torch.iinfo(dtype).max + 1)


def _randperm(
    n: int, dtype: torch.dtype | int | None, generator: torch.Generator | None = None
) -> Refusal | None:
    kind = dtype if isinstance(dtype, torch.dtype) else torch.int64
    if isinstance(n, int) and n > _most(kind):
        return Refusal(f"n is too large for {kind}")
    return default_generator(generator)


@map_to(
    aten.randperm.default,
    aten.randperm.generator,
    supports=_randperm,
    kernels="random.sampling",
    random=True,
)
def randperm(
    n: int | Dim,
    *,
    generator: Any = None,
    dtype: DType | int | None = None,
    device: DeviceRef | None = None,
) -> TensorValue:
    """randperm(SymInt n, *, ScalarType? dtype=long, Device? device=None) -> Tensor"""
    spec = expected()
    if is_empty(spec.shape):
        return full(0, working_dtype(), spec.shape, spec.device)
    most = _most(torch_dtype(spec.dtype))
    return draw("tmb_randperm", [tensor(working_dtype())], numbers=[most])[0]


def _multinomial(
    self: torch.Tensor, num_samples: int, replacement: bool, generator: torch.Generator | None
) -> Refusal | None:
    if not self.is_floating_point():
        return Refusal(f"{self.dtype} is not a floating-point dtype")
    known = isinstance(num_samples, int) and isinstance(self.shape[-1], int)
    if known and not replacement and num_samples > self.shape[-1]:
        return Refusal("more samples than there are positions, without replacement")
    return default_generator(generator)


@map_to(aten.multinomial.default, supports=_multinomial, kernels="random.multinomial", random=True)
def multinomial(
    self: TensorValue, num_samples: int | Dim, replacement: bool = False, *, generator: Any = None
) -> TensorValue:
    """multinomial(Tensor self, SymInt num_samples, bool replacement=False) -> Tensor"""
    spec = expected()
    if is_empty(spec.shape):
        return full(0, DType.int64, spec.shape, spec.device)
    weights = to_dtype(self, opmath(self.dtype))
    if weights.rank == 1:
        weights = ops.reshape(weights, [1, weights.shape[0]])
    rows = weights.shape[0]
    device = weights.device
    chosen = TensorType(DType.int64, [rows, Dim(num_samples)], device)
    keys = TensorType(DType.float64, weights.shape, device)
    if replacement:
        result, _ = draw("tmb_multinomial_replaced", [chosen, keys], [weights])
    else:
        heaps = TensorType(DType.int64, weights.shape, device)
        result, *_ = draw("tmb_multinomial", [chosen, keys, heaps], [weights])
    return ops.reshape(result, list(spec.shape))


def _counts(self: torch.Tensor, generator: torch.Generator | None) -> Refusal | None:
    if not self.is_floating_point():
        return Refusal(f"{self.dtype} is not a floating-point dtype")
    return default_generator(generator)


@map_to(aten.poisson.default, supports=_counts, kernels="random.sampling", random=True)
def poisson(self: TensorValue, generator: Any = None) -> TensorValue:
    """poisson(Tensor self) -> Tensor"""
    return _counted("tmb_poisson", self)


def _tries(
    count: torch.Tensor, prob: torch.Tensor, generator: torch.Generator | None
) -> Refusal | None:
    return _counts(count, generator) or _counts(prob, generator)


@map_to(aten.binomial.default, supports=_tries, kernels="random.sampling", random=True)
def binomial(count: TensorValue, prob: TensorValue, generator: Any = None) -> TensorValue:
    """binomial(Tensor count, Tensor prob) -> Tensor"""
    return _counted("tmb_binomial", count, prob)


def _counted(kernel: str, *parameters: TensorValue) -> TensorValue:
    spec = expected()
    if is_empty(spec.shape):
        return full(0, working_dtype(), spec.shape, spec.device)
    dtype = opmath(spec.dtype)
    given = [broadcast(v, spec.shape) for v in operands(dtype, *parameters)]
    (result,) = draw_each(kernel, [tensor(dtype)], given)
    return to_dtype(result, working_dtype())
