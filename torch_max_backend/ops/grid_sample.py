"""Images read at positions of a grid, by kernels of ``mojo_kernels/image/grid_sample.mojo``."""

from __future__ import annotations

import torch
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.ops.common.images import lifted, numbers
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten

_MODES = ("linear", "nearest", "cubic")


def _grid(value: TensorValue, spatial: int) -> TensorValue:
    """``[batch, depth, height, width, spatial]``."""
    return ops.reshape(value, [value.shape[0], *[1] * (3 - spatial), *value.shape[1:]])


def _sampled(
    x: TensorValue, grid: TensorValue, mode: int, padding: int, align: bool, spatial: int
) -> TensorValue:
    shape = expected().shape
    if is_empty(shape):
        return full(0, x.dtype, shape, x.device)
    (result,) = ops.custom(
        "tmb_grid_sample",
        x.device,
        [
            ops.reshape(x, lifted(x.shape, spatial)),
            _grid(grid, spatial),
            *numbers([padding, int(align)]),
        ],
        [TensorType(x.dtype, lifted(shape, spatial), x.device)],
        {"mode": _MODES[mode], "spatial": spatial},
    )
    return ops.reshape(result.tensor, shape)


def _sampled_backward(
    gradient: TensorValue,
    x: TensorValue,
    grid: TensorValue,
    mode: int,
    padding: int,
    align: bool,
    mask: list[bool],
    spatial: int,
) -> tuple[TensorValue | None, TensorValue | None]:
    images, grids = lifted(x.shape, spatial), _grid(grid, spatial)
    if is_empty(gradient.shape) or is_empty(x.shape):
        empty = [full(0, v.dtype, v.shape, v.device) for v in (x, grid)]
        return empty[0] if mask[0] else None, empty[1]
    # A gradient that nobody wants takes no memory, and no time.
    nothing: list[int | Dim] = [0] * 5
    by_grids = is_used(1)
    by_image, by_grid = ops.custom(
        "tmb_grid_sample_backward",
        x.device,
        [
            ops.reshape(gradient, lifted(gradient.shape, spatial)),
            ops.reshape(x, images),
            grids,
            *numbers([padding, int(align), int(mask[0])]),
        ],
        [
            TensorType(x.dtype, images if mask[0] else nothing, x.device),
            TensorType(x.dtype, grids.shape if by_grids else nothing, x.device),
        ],
        {"mode": _MODES[mode], "spatial": spatial},
    )
    return (
        ops.reshape(by_image.tensor, x.shape) if mask[0] else None,
        ops.reshape(by_grid.tensor, grid.shape) if by_grids else None,
    )


@map_to(aten.grid_sampler_2d.default, kernels="image.grid_sample")
def grid_sampler_2d(
    input: TensorValue,
    grid: TensorValue,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> TensorValue:
    """grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode,
    bool align_corners) -> Tensor"""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 2)


@map_to(aten.grid_sampler_3d.default, kernels="image.grid_sample")
def grid_sampler_3d(
    input: TensorValue,
    grid: TensorValue,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> TensorValue:
    """grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode,
    bool align_corners) -> Tensor"""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 3)


@map_to(aten.grid_sampler_2d_backward.default, kernels="image.grid_sample_backward")
def grid_sampler_2d_backward(
    grad_output: TensorValue,
    input: TensorValue,
    grid: TensorValue,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: list[bool],
) -> tuple[TensorValue | None, TensorValue | None]:
    """grid_sampler_2d_backward(Tensor grad_output, Tensor input, Tensor grid,
    int interpolation_mode, int padding_mode, bool align_corners, bool[2] output_mask)
    -> (Tensor, Tensor)"""
    settings = (interpolation_mode, padding_mode, align_corners, output_mask)
    return _sampled_backward(grad_output, input, grid, *settings, 2)


@map_to(aten.grid_sampler_3d_backward.default, kernels="image.grid_sample_backward")
def grid_sampler_3d_backward(
    grad_output: TensorValue,
    input: TensorValue,
    grid: TensorValue,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: list[bool],
) -> tuple[TensorValue | None, TensorValue | None]:
    """grid_sampler_3d_backward(Tensor grad_output, Tensor input, Tensor grid,
    int interpolation_mode, int padding_mode, bool align_corners, bool[2] output_mask)
    -> (Tensor, Tensor)"""
    settings = (interpolation_mode, padding_mode, align_corners, output_mask)
    return _sampled_backward(grad_output, input, grid, *settings, 3)
