"""Images of another size."""

from __future__ import annotations

from max.graph import TensorType, TensorValue, ops

from tests.gpu.kernels.support import numbers


def resized(x: TensorValue) -> list[TensorValue]:
    out = TensorType(x.dtype, [2, 3, 1, 5, 20], x.device)
    settings = numbers(0, 2, 0.0, 0.0, 1.5)
    results = []
    for kind in ("nearest", "linear", "cubic", "lanczos_aa"):
        for name in ("tmb_resample", "tmb_resample_backward"):
            results += ops.custom(name, x.device, [x, *settings], [out], {"kind": kind})
    return [r.tensor for r in results]


def sampled(x: TensorValue) -> list[TensorValue]:
    results = []
    for mode, spatial in (("linear", 2), ("linear", 3), ("nearest", 2), ("cubic", 2)):
        kind = {"mode": mode, "spatial": spatial}
        grid = ops.reshape(x, [2, -1, 1, 1, spatial])[:, :80]
        out = TensorType(x.dtype, [2, 3, 80, 1, 1], x.device)
        values = [x, grid, *numbers(2, 0)]
        (sample,) = ops.custom("tmb_grid_sample", x.device, values, [out], kind)
        values = [sample, x, grid, *numbers(0, 1, 1)]
        results.append(sample)
        types = [x.type, grid.type]
        results += ops.custom("tmb_grid_sample_backward", x.device, values, types, kind)
    return [r.tensor for r in results]


LIBRARIES = (
    "image.resample",
    "image.resample_backward",
    "image.grid_sample",
    "image.grid_sample_backward",
)
BUILDERS = (resized, sampled)
