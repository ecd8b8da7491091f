"""Pooling of one to three spatial dimensions, by ``mojo_kernels/pooling/forward.mojo``."""

from __future__ import annotations

from functools import partial

import torch
from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.graph.arguments import per_dimension
from torch_max_backend.ops.common import reduce
from torch_max_backend.ops.common.images import Sizes, lifted, numbers, three
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


def _max_pool(
    x: TensorValue,
    spatial: int,
    adaptive: bool,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> tuple[TensorValue, TensorValue | None]:
    shape = expected(0).shape
    if reduce.is_empty(shape):
        return full(0, x.dtype, shape, x.device), full(0, DType.int64, shape, x.device)
    out = lifted(shape, spatial)
    settings = [*three(kernel, 1), *three(stride, 1), *three(padding, 0), *three(dilation, 1)]
    # Places that nobody reads are not looked for.
    places = out if is_used(1) else [0] * 5
    values, indices = ops.custom(
        "tmb_max_pool",
        x.device,
        [ops.reshape(x, lifted(x.shape, spatial)), *numbers(settings)],
        [TensorType(x.dtype, out, x.device), TensorType(DType.int64, places, x.device)],
        {"adaptive": adaptive},
    )
    found = ops.reshape(indices.tensor, shape) if is_used(1) else None
    return ops.reshape(values.tensor, shape), found


def averaging(
    kernel_name: str,
    x: TensorValue,
    spatial: int,
    *,
    adaptive: bool = False,
    kernel: list[int] | None = None,
    stride: list[int] | None = None,
    padding: list[int] | None = None,
    count_padding: bool = False,
    divisor: int | None = None,
) -> TensorValue:
    """A pooling by means, or the way back from one: "tmb_avg_pool" or "tmb_avg_pool_backward"."""
    shape = expected().shape
    if reduce.is_empty(shape) or reduce.is_empty(x.shape):
        return full(0, x.dtype, shape, x.device)
    kernel = kernel or [1] * spatial
    settings = [
        *three(per_dimension(kernel, spatial), 1),
        *three(per_dimension(stride or kernel, spatial), 1),
        *three(per_dimension(padding or [0], spatial), 0),
        divisor or 0,
    ]
    (result,) = ops.custom(
        kernel_name,
        x.device,
        [ops.reshape(x, lifted(x.shape, spatial)), *numbers(settings)],
        [TensorType(x.dtype, lifted(shape, spatial), x.device)],
        {"adaptive": adaptive, "count_padding": count_padding},
    )
    return ops.reshape(result.tensor, shape)


_avg_pool = partial(averaging, "tmb_avg_pool")


@map_to(aten.max_pool2d_with_indices.default, kernels="base")
def max_pool2d(
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> tuple[TensorValue, TensorValue | None]:
    """max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[],
    int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)"""
    settings = [
        per_dimension(v, 2) for v in (kernel_size, stride or kernel_size, padding, dilation)
    ]
    return _max_pool(self, 2, False, *settings)


@map_to(aten.max_pool3d_with_indices.default, kernels="base")
def max_pool3d(
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
) -> tuple[TensorValue, TensorValue | None]:
    """max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[],
    int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)"""
    settings = [
        per_dimension(v, 3) for v in (kernel_size, stride or kernel_size, padding, dilation)
    ]
    return _max_pool(self, 3, False, *settings)


@map_to(aten.adaptive_max_pool2d.default, kernels="base")
def adaptive_max_pool2d(
    self: TensorValue, output_size: list[int]
) -> tuple[TensorValue, TensorValue | None]:
    """adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)"""
    return _max_pool(self, 2, True, [1], [1], [0], [1])


@map_to(aten.adaptive_max_pool3d.default, kernels="base")
def adaptive_max_pool3d(
    self: TensorValue, output_size: list[int]
) -> tuple[TensorValue, TensorValue | None]:
    """adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)"""
    return _max_pool(self, 3, True, [1], [1], [0], [1])


@map_to(aten.avg_pool2d.default, kernels="base")
def avg_pool2d(
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorValue:
    """avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0,
    bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor"""
    return _avg_pool(
        self,
        2,
        kernel=kernel_size,
        stride=stride,
        padding=padding,
        count_padding=count_include_pad,
        divisor=divisor_override,
    )


@map_to(aten.avg_pool3d.default, kernels="base")
def avg_pool3d(
    self: TensorValue,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorValue:
    """avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0,
    bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor"""
    return _avg_pool(
        self,
        3,
        kernel=kernel_size,
        stride=stride,
        padding=padding,
        count_padding=count_include_pad,
        divisor=divisor_override,
    )


@map_to(aten._adaptive_avg_pool2d.default, kernels="base")
def adaptive_avg_pool2d(self: TensorValue, output_size: list[int | Dim]) -> TensorValue:
    """_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor"""
    return _adaptive_avg_pool(self, output_size)


@map_to(aten._adaptive_avg_pool3d.default, kernels="base")
def adaptive_avg_pool3d(self: TensorValue, output_size: list[int | Dim]) -> TensorValue:
    """_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor"""
    return _adaptive_avg_pool(self, output_size)


def _adaptive_avg_pool(x: TensorValue, output_size: Sizes) -> TensorValue:
    spatial = len(output_size)
    if all(size == 1 for size in output_size):
        axes = range(x.rank - spatial, x.rank)
        return ops.reshape(reduce.mean(x, axes), expected().shape)
    return _avg_pool(x, spatial, adaptive=True)
