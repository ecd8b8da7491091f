"""Gradients of pooling, unpooling and fractional pooling, by kernels of
``mojo_kernels/pooling/unpooling.mojo``."""

from __future__ import annotations

import math
from functools import partial

import torch
from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.graph.arguments import per_dimension
from torch_max_backend.ops.common.images import Sizes, lifted, numbers, three
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.ops.pooling import averaging
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


def _placed(values: TensorValue, indices: TensorValue, spatial: int, add: bool) -> TensorValue:
    """Values at positions of the planes that the node promises, 0 elsewhere."""
    shape = expected().shape
    if is_empty(shape) or is_empty(values.shape):
        return full(0, values.dtype, shape, values.device)
    if list(indices.shape) != list(values.shape):
        # torch may know by a guard that two expressions of sizes are equal.
        indices = ops.rebind(indices, values.shape)
    rows, outputs = _planes(values.shape, spatial), _planes(shape, spatial)
    (result,) = ops.custom(
        "tmb_plane_scatter",
        values.device,
        [ops.reshape(values, rows), ops.reshape(indices, rows)],
        [TensorType(values.dtype, outputs, values.device)],
        {"add": add},
    )
    return ops.reshape(result.tensor, shape)


def _planes(shape: Sizes, spatial: int) -> list[Dim]:
    """``[planes, pixels]`` of a shape with spatial dimensions at its end."""
    at = len(shape) - spatial
    return [math.prod(shape[:at], start=Dim(1)), math.prod(shape[at:], start=Dim(1))]


@map_to(aten.max_pool2d_with_indices_backward.default, kernels="pooling.unpooling")
def max_pool2d_backward(
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: TensorValue,
) -> TensorValue:
    """max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size,
    int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices) -> Tensor"""
    return _placed(grad_output, indices, 2, True)


@map_to(aten.max_pool3d_with_indices_backward.default, kernels="pooling.unpooling")
def max_pool3d_backward(
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: TensorValue,
) -> TensorValue:
    """max_pool3d_with_indices_backward(Tensor grad_output, Tensor self, int[3] kernel_size,
    int[3] stride, int[3] padding, int[3] dilation, bool ceil_mode, Tensor indices) -> Tensor"""
    return _placed(grad_output, indices, 3, True)


@map_to(aten.adaptive_max_pool2d_backward.default, kernels="pooling.unpooling")
def adaptive_max_pool2d_backward(
    grad_output: TensorValue, self: TensorValue, indices: TensorValue
) -> TensorValue:
    """adaptive_max_pool2d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor"""
    return _placed(grad_output, indices, 2, True)


@map_to(aten.adaptive_max_pool3d_backward.default, kernels="pooling.unpooling")
def adaptive_max_pool3d_backward(
    grad_output: TensorValue, self: TensorValue, indices: TensorValue
) -> TensorValue:
    """adaptive_max_pool3d_backward(Tensor grad_output, Tensor self, Tensor indices) -> Tensor"""
    return _placed(grad_output, indices, 3, True)


@map_to(aten.fractional_max_pool2d_backward.default, kernels="pooling.unpooling")
def fractional_max_pool2d_backward(
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: list[int],
    output_size: list[int],
    indices: TensorValue,
) -> TensorValue:
    """fractional_max_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size,
    int[2] output_size, Tensor indices) -> Tensor"""
    return _placed(grad_output, indices, 2, True)


@map_to(aten.fractional_max_pool3d_backward.default, kernels="pooling.unpooling")
def fractional_max_pool3d_backward(
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: list[int],
    output_size: list[int],
    indices: TensorValue,
) -> TensorValue:
    """fractional_max_pool3d_backward(Tensor grad_output, Tensor self, int[3] kernel_size,
    int[3] output_size, Tensor indices) -> Tensor"""
    return _placed(grad_output, indices, 3, True)


@map_to(aten.max_unpool2d.default, kernels="pooling.unpooling")
def max_unpool2d(
    self: TensorValue, indices: TensorValue, output_size: list[int | Dim]
) -> TensorValue:
    """max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor"""
    return _placed(self, indices, 2, False)


@map_to(aten.max_unpool3d.default, kernels="pooling.unpooling")
def max_unpool3d(
    self: TensorValue,
    indices: TensorValue,
    output_size: list[int | Dim],
    stride: list[int],
    padding: list[int],
) -> TensorValue:
    """max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride,
    int[3] padding) -> Tensor"""
    return _placed(self, indices, 3, False)


_spread = partial(averaging, "tmb_avg_pool_backward")


def _floating(grad_output: torch.Tensor) -> Refusal | None:
    if grad_output.is_floating_point():
        return None
    return Refusal(f"gradients of means are not {grad_output.dtype}")


@map_to(aten.avg_pool2d_backward.default, supports=_floating, kernels="pooling.unpooling")
def avg_pool2d_backward(
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorValue:
    """avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride,
    int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor"""
    return _spread(
        grad_output,
        2,
        kernel=kernel_size,
        stride=stride,
        padding=padding,
        count_padding=count_include_pad,
        divisor=divisor_override,
    )


@map_to(aten.avg_pool3d_backward.default, supports=_floating, kernels="pooling.unpooling")
def avg_pool3d_backward(
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorValue:
    """avg_pool3d_backward(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride,
    int[3] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor"""
    return _spread(
        grad_output,
        3,
        kernel=kernel_size,
        stride=stride,
        padding=padding,
        count_padding=count_include_pad,
        divisor=divisor_override,
    )


@map_to(aten._adaptive_avg_pool2d_backward.default, supports=_floating, kernels="pooling.unpooling")
def adaptive_avg_pool2d_backward(grad_output: TensorValue, self: TensorValue) -> TensorValue:
    """_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor"""
    return _spread(grad_output, 2, adaptive=True)


@map_to(aten._adaptive_avg_pool3d_backward.default, supports=_floating, kernels="pooling.unpooling")
def adaptive_avg_pool3d_backward(grad_output: TensorValue, self: TensorValue) -> TensorValue:
    """_adaptive_avg_pool3d_backward(Tensor grad_output, Tensor self) -> Tensor"""
    return _spread(grad_output, 3, adaptive=True)


def _rounded(self: torch.Tensor) -> Refusal | None:
    if self.dtype in (torch.float16, torch.bfloat16):
        return Refusal("torch places windows with 16-bit arithmetic")
    return None


def _fractional(
    x: TensorValue, samples: TensorValue, kernel: list[int], spatial: int
) -> tuple[TensorValue, TensorValue]:
    shape = expected().shape
    if is_empty(shape):
        return full(0, x.dtype, shape, x.device), full(0, DType.int64, shape, x.device)
    images, out = lifted(x.shape, spatial), lifted(shape, spatial)
    order = (2, 1, 0) if spatial == 2 else (0, 1, 2)
    # In two dimensions the width comes first.
    parts = [samples[:, :, min(i, spatial - 1)] for i in order]
    given = ops.stack(parts, -1)
    if x.rank == spatial + 1:
        # torch draws for each channel as if it was a batch, and reads the first.
        given = given[:1]
    given = ops.rebind(given, [*images[:2], 3])
    values, indices = ops.custom(
        "tmb_fractional_max_pool",
        x.device,
        [ops.reshape(x, images), given, *numbers(three(per_dimension(kernel, spatial), 1))],
        [TensorType(x.dtype, out, x.device), TensorType(DType.int64, out, x.device)],
    )
    return ops.reshape(values.tensor, shape), ops.reshape(indices.tensor, shape)


@map_to(aten.fractional_max_pool2d.default, supports=_rounded, kernels="pooling.unpooling")
def fractional_max_pool2d(
    self: TensorValue, kernel_size: list[int], output_size: list[int], random_samples: TensorValue
) -> tuple[TensorValue, TensorValue]:
    """fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size,
    Tensor random_samples) -> (Tensor, Tensor)"""
    return _fractional(self, random_samples, kernel_size, 2)


@map_to(aten.fractional_max_pool3d.default, supports=_rounded, kernels="pooling.unpooling")
def fractional_max_pool3d(
    self: TensorValue, kernel_size: list[int], output_size: list[int], random_samples: TensorValue
) -> tuple[TensorValue, TensorValue]:
    """fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size,
    Tensor random_samples) -> (Tensor, Tensor)"""
    return _fractional(self, random_samples, kernel_size, 3)
