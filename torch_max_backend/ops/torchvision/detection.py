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


def _supported(input: torch.Tensor, rois: torch.Tensor) -> Refusal | None:
    if input.device.type != "cpu":
        return Refusal("its kernel is for CPUs")
    if input.dtype != rois.dtype:
        return Refusal("images and boxes of different dtypes")
    return None


@map_to(
    torch.ops.torchvision.roi_align.default, supports=_supported, kernels="image.roi_align"
)  # fmt: skip
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
    (result,) = ops.custom(
        "tmb_roi_align",
        input.device,
        [
            input,
            rois,
            *numbers([sampling_ratio, int(aligned)]),
            ops.constant(spatial_scale, DType.float64, DeviceRef.CPU()),
        ],
        [TensorType(input.dtype, shape, input.device)],
    )
    return result.tensor
