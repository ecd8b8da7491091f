"""Calls of the kernels that draw random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected, random_stream
from torch_max_backend.ops.common.positions import product
from torch_max_backend.registry.lowerings import Refusal

# Binary digits of a uniform number: those that leave it below 1.
DIGITS = {DType.float64: 53, DType.float32: 24, DType.float16: 11, DType.bfloat16: 8}

Sizes = list[int | Dim] | list[int] | list[Dim]


def default_generator(generator: torch.Generator | None = None) -> Refusal | None:
    """Refuses generators other than the one that seeds are drawn from."""
    if generator is None or generator is torch.default_generator:
        return None
    return Refusal("an explicit generator: seeds are drawn from torch's default generators")


def draw(
    kernel: str,
    results: Sequence[TensorType],
    given: Sequence[TensorValue] = (),
    numbers: Sequence[int | float | TensorValue] = (),
    parameters: Mapping[str, str] | None = None,
) -> list[TensorValue]:
    """The results of a kernel that takes tensors, the node's stream and numbers, in this order."""
    stream = random_stream()
    scalars = [stream.seed, integer(stream.node), stream.instance]
    scalars += [n if isinstance(n, TensorValue) else scalar(n) for n in numbers]
    out = ops.custom(
        kernel, results[0].device, [*given, *scalars], list(results), dict(parameters or {})
    )
    return [v.tensor for v in out]


def draw_each(
    kernel: str,
    results: Sequence[TensorType],
    given: Sequence[TensorValue] = (),
    numbers: Sequence[int | float | TensorValue] = (),
    parameters: Mapping[str, str] | None = None,
) -> list[TensorValue]:
    """The same of a kernel that draws for each element, which takes tensors of one dim."""
    lines = [TensorType(r.dtype, [product(r.shape)], r.device) for r in results]
    flat = [ops.reshape(v, [product(v.shape)]) for v in given]
    found = draw(kernel, lines, flat, numbers, parameters)
    return [ops.reshape(v, r.shape) for v, r in zip(found, results, strict=True)]


def tensor(dtype: DType, index: int = 0) -> TensorType:
    """The type of output ``index`` of the node under conversion, but for its dtype."""
    spec = expected(index)
    return TensorType(dtype, list(spec.shape), spec.device)


def scalar(number: int | float) -> TensorValue:
    """A float as float64, an int as int64: a scalar of a kernel."""
    if isinstance(number, int):
        return integer(number)
    return ops.constant(number, DType.float64, DeviceRef.CPU())


def integer(number: int | Dim) -> TensorValue:
    """A number or size as a scalar of a kernel."""
    if isinstance(number, int):
        return ops.constant(number, DType.int64, DeviceRef.CPU())
    return ops.reshape(ops.shape_to_tensor([number]), [])
