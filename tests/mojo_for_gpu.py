"""``python -m tests.mojo_for_gpu cuda sm_90a OUT``: compile the Mojo kernels for a GPU that is not
here, each in a graph of one module.

A process of its own for each target: MAX fixes the target when it makes its first device.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from max import driver
from max.dtype import DType
from max.graph import DeviceRef, Graph, Module, TensorType, TensorValue, ops


def pooled(x: TensorValue) -> list[TensorValue]:
    out = TensorType(x.dtype, [2, 3, 1, 4, 5], x.device)
    indices = TensorType(DType.int64, out.shape, x.device)
    numbers = [ops.constant(v, DType.int64, DeviceRef.CPU()) for v in (1, 2, 2, 1, 2, 2, 0, 0, 0)]
    one = ops.constant(1, DType.int64, DeviceRef.CPU())
    results = []
    for adaptive in (False, True):
        settings = {"adaptive": adaptive}
        values = [x, *numbers, one, one, one]
        results += ops.custom("tmb_max_pool", x.device, values, [out, indices], settings)
        values = [x, *numbers, ops.constant(0, DType.int64, DeviceRef.CPU())]
        settings["count_padding"] = not adaptive
        results += ops.custom("tmb_avg_pool", x.device, values, [out], settings)
    return [r.tensor for r in results]


def lines(x: TensorValue) -> list[TensorValue]:
    indices = TensorType(DType.int64, x.shape, x.device)
    few = [*x.shape[:-1], 3]
    order = {"descending": True}
    results = ops.custom("tmb_sort", x.device, [x], [x.type, indices] * 2, order)
    types = [TensorType(d, few, x.device) for d in (x.dtype, DType.int64)]
    results += ops.custom("tmb_topk", x.device, [x], types, order)
    for kind in ("prod", "logsumexp"):
        settings = {"axis": 1, "kind": kind}
        results += ops.custom("tmb_scan", x.device, [x], [x.type], settings)
    settings = {"axis": 1, "least": True}
    results += ops.custom("tmb_running_extreme", x.device, [x], [x.type, indices], settings)
    return [r.tensor for r in results]


def _numbers(*values: int | float) -> list[TensorValue]:
    kinds = [DType.float64 if isinstance(v, float) else DType.int64 for v in values]
    return [ops.constant(v, k, DeviceRef.CPU()) for v, k in zip(values, kinds, strict=True)]


def resized(x: TensorValue) -> list[TensorValue]:
    out = TensorType(x.dtype, [2, 3, 1, 5, 20], x.device)
    settings = _numbers(0, 2, 0.0, 0.0, 1.5)
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
        values = [x, grid, *_numbers(2, 0)]
        (sample,) = ops.custom("tmb_grid_sample", x.device, values, [out], kind)
        values = [sample, x, grid, *_numbers(0, 1, 1)]
        results.append(sample)
        types = [x.type, grid.type]
        results += ops.custom("tmb_grid_sample_backward", x.device, values, types, kind)
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
    values = [x, *_numbers(1, 2, 2, 1, 2, 2, 0, 0, 0, 0)]
    results += ops.custom("tmb_avg_pool_backward", x.device, values, [out], settings)
    out = TensorType(x.dtype, [2, 3, 1, 4, 5], x.device)
    types = [out, TensorType(DType.int64, out.shape, x.device)]
    values = [x, x[:, :, 0, 0, :3], *_numbers(1, 2, 2)]
    results += ops.custom("tmb_fractional_max_pool", x.device, values, types)
    return [r.tensor for r in results]


def slid(x: TensorValue) -> list[TensorValue]:
    image = ops.reshape(x, [2, 3, 8, 10])
    settings = _numbers(2, 2, 1, 1, 0, 0, 1, 1)
    columns = TensorType(x.dtype, [2, 12, 63], x.device)
    (taken,) = ops.custom("tmb_im2col", x.device, [image, *settings], [columns])
    (back,) = ops.custom("tmb_col2im", x.device, [taken.tensor, *settings], [image.type])
    return [taken.tensor, back.tensor]


def main(api: str, architecture: str, out: str) -> None:
    driver.set_virtual_device_api(api)
    driver.set_virtual_device_target_arch(architecture)
    driver.set_virtual_device_count(1)

    from torch_max_backend.compile.kernels import kernel_library_path
    from torch_max_backend.compile.module import compile_module, serialized

    families = ("base", "resample", "grid_sample", "unpooling", "patches")
    module, libraries = Module(), [kernel_library_path(family) for family in families]
    for i, build in enumerate((pooled, lines, resized, sampled, unpooled, slid)):
        x = TensorType(DType.float32, [2, 3, 1, 8, 10], DeviceRef.GPU())
        with Graph(f"g{i}", input_types=[x], module=module, custom_extensions=libraries) as graph:
            graph.output(*build(graph.inputs[0].tensor))
    Path(out).write_bytes(serialized(compile_module(module, libraries, f"for {architecture}")))
    sys.stdout.flush()
    os._exit(0)  # A process with virtual devices aborts in its exit handlers.


if __name__ == "__main__":
    main(*sys.argv[1:4])
