"""Resizing of images and its gradient, by kernels of ``mojo_kernels/image/resample.mojo``.

Each overload is told apart by its filter and its number of spatial dimensions alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.torch_versions import LANCZOS, LANCZOS_BACKWARD
from torch_max_backend.convert.context import current_node, expected
from torch_max_backend.ops.common.bank import number
from torch_max_backend.ops.common.images import lifted
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

# The filter and the number of spatial dimensions of each function.
_KINDS = {
    "upsample_nearest1d": ("nearest", 1),
    "upsample_nearest2d": ("nearest", 2),
    "upsample_nearest3d": ("nearest", 3),
    "_upsample_nearest_exact1d": ("nearest_exact", 1),
    "_upsample_nearest_exact2d": ("nearest_exact", 2),
    "_upsample_nearest_exact3d": ("nearest_exact", 3),
    "upsample_linear1d": ("linear", 1),
    "upsample_bilinear2d": ("linear", 2),
    "upsample_trilinear3d": ("linear", 3),
    "upsample_bicubic2d": ("cubic", 2),
    "_upsample_bilinear2d_aa": ("linear_aa", 2),
    "_upsample_bicubic2d_aa": ("cubic_aa", 2),
    "_upsample_lanczos2d_aa": ("lanczos_aa", 2),
}


def _supports(self: torch.Tensor) -> Refusal | None:
    if self.is_floating_point() or self.dtype == torch.uint8:
        return None
    return Refusal(f"images of {self.dtype} are not resized")


def _supports_gradient(grad_output: torch.Tensor) -> Refusal | None:
    if grad_output.is_floating_point():
        return None
    return Refusal(f"gradients of {grad_output.dtype} are not resized")


def _resized(
    x: TensorValue, backward: bool, align_corners: bool, scales: Sequence[float | None]
) -> TensorValue:
    """An image, or the gradient of one, of the size that the node promises."""
    target = current_node().node.target
    assert isinstance(target, OpOverload)
    name = target._schema.name.removeprefix("aten::").removesuffix("_backward")
    kind, spatial = _KINDS[name]
    shape = expected().shape
    if is_empty(shape):
        return full(0, x.dtype, shape, x.device)
    if backward and is_empty(x.shape):
        return full(0, x.dtype, shape, x.device)
    numbers = [0.0] * (3 - spatial) + [s or 0.0 for s in scales]
    (result,) = ops.custom(
        "tmb_resample_backward" if backward else "tmb_resample",
        x.device,
        [
            ops.reshape(x, lifted(x.shape, spatial)),
            number(align_corners),
            number(spatial),
            *(ops.constant(v, DType.float64, DeviceRef.CPU()) for v in numbers),
        ],
        [TensorType(x.dtype, lifted(shape, spatial), x.device)],
        {"kind": kind},
    )
    return ops.reshape(result.tensor, shape)


@map_to(
    aten.upsample_nearest1d.default,
    aten._upsample_nearest_exact1d.default,
    supports=_supports,
    kernels="image.resample",
)
def nearest1d(
    self: TensorValue, output_size: list[int | Dim], scales: float | None = None
) -> TensorValue:
    """upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor"""
    return _resized(self, False, False, [scales])


@map_to(
    aten.upsample_nearest2d.default,
    aten._upsample_nearest_exact2d.default,
    supports=_supports,
    kernels="image.resample",
)
def nearest2d(
    self: TensorValue,
    output_size: list[int | Dim],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None,
    float? scales_w=None) -> Tensor"""
    return _resized(self, False, False, [scales_h, scales_w])


@map_to(
    aten.upsample_nearest3d.default,
    aten._upsample_nearest_exact3d.default,
    supports=_supports,
    kernels="image.resample",
)
def nearest3d(
    self: TensorValue,
    output_size: list[int | Dim],
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None,
    float? scales_h=None, float? scales_w=None) -> Tensor"""
    return _resized(self, False, False, [scales_d, scales_h, scales_w])


@map_to(aten.upsample_linear1d.default, supports=_supports, kernels="image.resample")
def linear1d(
    self: TensorValue,
    output_size: list[int | Dim],
    align_corners: bool,
    scales: float | None = None,
) -> TensorValue:
    """upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners,
    float? scales=None) -> Tensor"""
    return _resized(self, False, align_corners, [scales])


@map_to(
    aten.upsample_bilinear2d.default,
    aten.upsample_bicubic2d.default,
    aten._upsample_bilinear2d_aa.default,
    aten._upsample_bicubic2d_aa.default,
    *(packet.default for packet in LANCZOS),
    supports=_supports,
    kernels="image.resample",
)
def filtered2d(
    self: TensorValue,
    output_size: list[int | Dim],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners,
    float? scales_h=None, float? scales_w=None) -> Tensor"""
    return _resized(self, False, align_corners, [scales_h, scales_w])


@map_to(aten.upsample_trilinear3d.default, supports=_supports, kernels="image.resample")
def trilinear3d(
    self: TensorValue,
    output_size: list[int | Dim],
    align_corners: bool,
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners,
    float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor"""
    return _resized(self, False, align_corners, [scales_d, scales_h, scales_w])


@map_to(
    aten.upsample_nearest1d_backward.default,
    aten._upsample_nearest_exact1d_backward.default,
    supports=_supports_gradient,
    kernels="image.resample_backward",
)
def nearest1d_backward(
    grad_output: TensorValue,
    output_size: list[int | Dim],
    input_size: list[int | Dim],
    scales: float | None = None,
) -> TensorValue:
    """upsample_nearest1d_backward(Tensor grad_output, SymInt[1] output_size,
    SymInt[3] input_size, float? scales=None) -> Tensor"""
    return _resized(grad_output, True, False, [scales])


@map_to(
    aten.upsample_nearest2d_backward.default,
    aten._upsample_nearest_exact2d_backward.default,
    supports=_supports_gradient,
    kernels="image.resample_backward",
)
def nearest2d_backward(
    grad_output: TensorValue,
    output_size: list[int | Dim],
    input_size: list[int | Dim],
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_nearest2d_backward(Tensor grad_output, SymInt[2] output_size,
    SymInt[4] input_size, float? scales_h=None, float? scales_w=None) -> Tensor"""
    return _resized(grad_output, True, False, [scales_h, scales_w])


@map_to(
    aten.upsample_nearest3d_backward.default,
    aten._upsample_nearest_exact3d_backward.default,
    supports=_supports_gradient,
    kernels="image.resample_backward",
)
def nearest3d_backward(
    grad_output: TensorValue,
    output_size: list[int | Dim],
    input_size: list[int | Dim],
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_nearest3d_backward(Tensor grad_output, SymInt[3] output_size,
    SymInt[5] input_size, float? scales_d=None, float? scales_h=None,
    float? scales_w=None) -> Tensor"""
    return _resized(grad_output, True, False, [scales_d, scales_h, scales_w])


@map_to(
    aten.upsample_linear1d_backward.default,
    supports=_supports_gradient,
    kernels="image.resample_backward",
)
def linear1d_backward(
    grad_output: TensorValue,
    output_size: list[int | Dim],
    input_size: list[int | Dim],
    align_corners: bool,
    scales: float | None = None,
) -> TensorValue:
    """upsample_linear1d_backward(Tensor grad_output, SymInt[1] output_size,
    SymInt[3] input_size, bool align_corners, float? scales=None) -> Tensor"""
    return _resized(grad_output, True, align_corners, [scales])


@map_to(
    aten.upsample_bilinear2d_backward.default,
    aten.upsample_bicubic2d_backward.default,
    aten._upsample_bilinear2d_aa_backward.default,
    aten._upsample_bicubic2d_aa_backward.default,
    *(packet.default for packet in LANCZOS_BACKWARD),
    supports=_supports_gradient,
    kernels="image.resample_backward",
)
def filtered2d_backward(
    grad_output: TensorValue,
    output_size: list[int | Dim],
    input_size: list[int | Dim],
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_bilinear2d_backward(Tensor grad_output, SymInt[2] output_size,
    SymInt[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None)
    -> Tensor"""
    return _resized(grad_output, True, align_corners, [scales_h, scales_w])


@map_to(
    aten.upsample_trilinear3d_backward.default,
    supports=_supports_gradient,
    kernels="image.resample_backward",
)
def trilinear3d_backward(
    grad_output: TensorValue,
    output_size: list[int | Dim],
    input_size: list[int | Dim],
    align_corners: bool,
    scales_d: float | None = None,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> TensorValue:
    """upsample_trilinear3d_backward(Tensor grad_output, SymInt[3] output_size,
    SymInt[5] input_size, bool align_corners, float? scales_d=None, float? scales_h=None,
    float? scales_w=None) -> Tensor"""
    return _resized(grad_output, True, align_corners, [scales_d, scales_h, scales_w])
