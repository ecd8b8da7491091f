"""Windows: pooling, its way back, patches."""

from __future__ import annotations

from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from tests.gpu.kernels.support import numbers


def pooled(x: TensorValue) -> list[TensorValue]:
    out = TensorType(x.dtype, [2, 3, 1, 4, 5], x.device)
    indices = TensorType(DType.int64, out.shape, x.device)
    window = numbers(1, 2, 2, 1, 2, 2, 0, 0, 0)
    results = []
    for adaptive in (False, True):
        settings = {"adaptive": adaptive}
        values = [x, *window, *numbers(1, 1, 1)]
        results += ops.custom("tmb_max_pool", x.device, values, [out, indices], settings)
        values = [x, *window, *numbers(0)]
        settings["count_padding"] = not adaptive
        results += ops.custom("tmb_avg_pool", x.device, values, [out], settings)
    return [r.tensor for r in results]


def unpooled(x: TensorValue) -> list[TensorValue]:
    rows = ops.reshape(x, [6, 80])
    places = ops.cast(rows, DType.int64)
    wide = TensorType(x.dtype, [6, 100], x.device)
    results = []
    for add in (False, True):
        results += ops.custom("tmb_plane_scatter", x.device, [rows, places], [wide], {"add": add})
    out = TensorType(x.dtype, [2, 3, 1, 16, 20], x.device)
    settings = {"adaptive": False, "count_padding": True}
    values = [x, *numbers(1, 2, 2, 1, 2, 2, 0, 0, 0, 0)]
    results += ops.custom("tmb_avg_pool_backward", x.device, values, [out], settings)
    out = TensorType(x.dtype, [2, 3, 1, 4, 5], x.device)
    types = [out, TensorType(DType.int64, out.shape, x.device)]
    values = [x, x[:, :, 0, 0, :3], *numbers(1, 2, 2)]
    results += ops.custom("tmb_fractional_max_pool", x.device, values, types)
    return [r.tensor for r in results]


def slid(x: TensorValue) -> list[TensorValue]:
    image = ops.reshape(x, [2, 3, 8, 10])
    settings = numbers(2, 2, 1, 1, 0, 0, 1, 1)
    columns = TensorType(x.dtype, [2, 12, 63], x.device)
    (taken,) = ops.custom("tmb_im2col", x.device, [image, *settings], [columns])
    (back,) = ops.custom("tmb_col2im", x.device, [taken.tensor, *settings], [image.type])
    return [taken.tensor, back.tensor]


def convolved(x: TensorValue) -> list[TensorValue]:
    image = ops.cast(x, DType.int32)
    weight = ops.reshape(image, [6, 1, 1, 8, 10])[:, :, :, :2, :3]
    out = TensorType(DType.int32, [2, 6, 1, 7, 8], x.device)
    settings = numbers(1, 1, 1, 0, 0, 0, 1, 1, 1, 3)
    values = [image, weight, *settings]
    return [r.tensor for r in ops.custom("tmb_integer_convolution", x.device, values, [out])]


LIBRARIES = ("pooling.unpooling", "image.patches", "convolution.integers")
BUILDERS = (pooled, unpooled, slid, convolved)
