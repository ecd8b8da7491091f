"""Kernels of ``mojo_kernels`` that work element by element."""

from __future__ import annotations

import math

from max.graph import Dim, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.promotion import broadcast


def elementwise(
    kernel: str,
    *values: TensorValue,
    scalars: tuple[TensorValue, ...] = (),
    **parameters: bool | int | str,
) -> TensorValue:
    """Call a kernel whose tensors have one shape, that of the node under conversion.

    Args:
        kernel: The registered name.
        values: Its tensors, ready to be broadcast; the result has the first one's dtype.
        scalars: Its 0-d arguments on the CPU.
        parameters: Its compile-time parameters.
    """
    shape = expected().shape
    # As lines, so that each rank is not compiled for itself.
    line = [math.prod(shape, start=Dim(1))]
    flat = [ops.reshape(broadcast(value, shape), line) for value in values]
    results = ops.custom(
        kernel, flat[0].device, [*flat, *scalars], [flat[0].type], dict(parameters)
    )
    return ops.reshape(results[0].tensor, shape)
