"""Gradients of convolutions that are no convolutions."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.graph.decompositions.gradients import convolution  # noqa: F401  defines the operator
from torch_max_backend.ops.common.images import numbers, planar, planar_settings, planar_shape
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to


@map_to(
    torch.ops.torch_max_backend.convolution_weight_gradient.default,
    kernels="convolution.weight_gradient",
)
def convolution_weight_gradient(
    grad_output: TensorValue,
    input: TensorValue,
    weight_size: list[int | Dim],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> TensorValue:
    """The gradient ``[channels out, channels in / groups, *kernel]`` of a convolution's weights on
    CPU, float32 or float64, of one or two spatial dimensions."""
    shape = expected().shape
    assert input.dtype in (DType.float32, DType.float64), "decomposed otherwise"
    if is_empty(shape):
        return full(0, input.dtype, shape, input.device)
    settings = [*planar_settings(stride, padding, dilation), groups]
    result = ops.custom(
        "tmb_convolution_weight_gradient",
        input.device,
        [planar(grad_output), planar(input), *numbers(settings)],
        [TensorType(input.dtype, planar_shape(shape), input.device)],
    )[0]
    return ops.reshape(result.tensor, shape)
