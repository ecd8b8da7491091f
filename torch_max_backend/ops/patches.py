"""Sliding windows as columns and back, by kernels of ``mojo_kernels/image/patches.mojo``."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.graph.arguments import per_dimension
from torch_max_backend.ops.common.images import Sizes, numbers
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


def _slid(kernel: str, x: TensorValue, rank: int, settings: list[int]) -> TensorValue:
    """The result of a kernel that takes the input and gives the output with a batch."""
    shape, dtype = expected().shape, x.dtype
    if is_empty(shape) or is_empty(x.shape):
        return full(0, dtype, shape, x.device)
    if dtype == DType.bool:
        x = to_dtype(x, DType.uint8)
    (result,) = ops.custom(
        kernel,
        x.device,
        [ops.reshape(x, _batched(x.shape, 7 - rank)), *numbers(settings)],
        [TensorType(x.dtype, _batched(shape, rank), x.device)],
    )
    return to_dtype(ops.reshape(result.tensor, shape), dtype)


def _batched(shape: Sizes, rank: int) -> list[int | Dim]:
    return [*[1] * (rank - len(shape)), *shape]


@map_to(aten.im2col.default, native16=True, kernels="image.patches")
def im2col(
    self: TensorValue,
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> TensorValue:
    """im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride)
    -> Tensor"""
    return _slid("tmb_im2col", self, 3, _pairs(kernel_size, stride, padding, dilation))


@map_to(aten.col2im.default, kernels="image.patches")
def col2im(
    self: TensorValue,
    output_size: list[int | Dim],
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> TensorValue:
    """col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation,
    int[2] padding, int[2] stride) -> Tensor"""
    return _slid("tmb_col2im", self, 4, _pairs(kernel_size, stride, padding, dilation))


def _pairs(*settings: list[int]) -> list[int]:
    return [n for values in settings for n in per_dimension(values, 2)]
