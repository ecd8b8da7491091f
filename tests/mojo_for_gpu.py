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


def transformed(x: TensorValue) -> list[TensorValue]:
    lines = ops.reshape(x, [48, 10])
    scratch = [TensorType(x.dtype, [size], x.device) for size in (48 * 10 * 2, 48 * 10 * 2, 20)]
    normalization = ops.constant(1, DType.int64, DeviceRef.CPU())
    results = []
    for kind, row in (("c2c", 10), ("r2c", 12), ("r2c_full", 20), ("c2r", 8)):
        types = [TensorType(x.dtype, [48, row], x.device), *scratch]
        settings = {"kind": kind, "inverse": kind == "c2r"}
        made = ops.custom("tmb_fft", x.device, [lines, normalization], types, settings)
        results.append(made[0].tensor)
    return results


def main(api: str, architecture: str, out: str) -> None:
    driver.set_virtual_device_api(api)
    driver.set_virtual_device_target_arch(architecture)
    driver.set_virtual_device_count(1)

    from torch_max_backend.compile.kernels import kernel_library_path
    from torch_max_backend.compile.module import compile_module, serialized

    module = Module()
    libraries = [kernel_library_path(name) for name in ("base", "fft")]
    for i, build in enumerate((pooled, lines, transformed)):
        x = TensorType(DType.float32, [2, 3, 1, 8, 10], DeviceRef.GPU())
        with Graph(f"g{i}", input_types=[x], module=module, custom_extensions=libraries) as graph:
            graph.output(*build(graph.inputs[0].tensor))
    Path(out).write_bytes(serialized(compile_module(module, libraries, f"for {architecture}")))
    sys.stdout.flush()
    os._exit(0)  # A process with virtual devices aborts in its exit handlers.


if __name__ == "__main__":
    main(*sys.argv[1:4])
