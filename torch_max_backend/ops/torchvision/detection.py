"""Operators of detection models."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.images import numbers
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to


def _refused(x: torch.Tensor, rois: torch.Tensor) -> Refusal | None:
    if x.device.type != "cpu":
        return Refusal("its kernel is for CPUs")
    if x.dtype != rois.dtype:
        return Refusal("images and boxes of different dtypes")
    return None


@map_to(
    torch.ops.torchvision.roi_align.default,
    supports=lambda input, rois: _refused(input, rois),
    kernels="image.roi_align",
)
def roi_align(
    input: TensorValue,
    rois: TensorValue,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> TensorValue:
    """roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height,
    SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"""
    shape = expected().shape
    if is_empty(shape) or is_empty(input.shape):
        return full(0, input.dtype, shape, input.device)
    return _of_boxes("tmb_roi_align", input, rois, spatial_scale, sampling_ratio, aligned)


@map_to(
    torch.ops.torchvision._roi_align_backward.default,
    supports=lambda grad, rois: _refused(grad, rois),
    kernels="image.roi_align_backward",
)
def roi_align_backward(
    grad: TensorValue,
    rois: TensorValue,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> TensorValue:
    """_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, SymInt pooled_height,
    SymInt pooled_width, SymInt batch_size, SymInt channels, SymInt height, SymInt width,
    int sampling_ratio, bool aligned) -> Tensor"""
    shape = expected().shape
    if is_empty(shape) or is_empty(grad.shape):
        return full(0, grad.dtype, shape, grad.device)
    return _of_boxes("tmb_roi_align_backward", grad, rois, spatial_scale, sampling_ratio, aligned)


def _of_boxes(
    kernel: str, x: TensorValue, rois: TensorValue, scale: float, samples: int, aligned: bool
) -> TensorValue:
    (result,) = ops.custom(
        kernel,
        x.device,
        [
            x,
            rois,
            *numbers([samples, int(aligned)]),
            ops.constant(scale, DType.float64, DeviceRef.CPU()),
        ],
        [TensorType(x.dtype, expected().shape, x.device)],
    )
    return result.tensor
