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


def ordered(x: TensorValue) -> list[TensorValue]:
    device, indices = x.device, TensorType(DType.int64, x.shape, x.device)

    def both(shape: list[int]) -> list[TensorType]:
        return [TensorType(d, shape, device) for d in (x.dtype, DType.int64)]

    order = {"descending": True}
    results = ops.custom("tmb_sort", device, [x], [x.type, indices] * 2, order)
    results += ops.custom("tmb_topk", device, [x], both([*x.shape[:-1], 3]), order)
    results += ops.custom("tmb_mode", device, results[:2], both([*x.shape[:-1], 1]))
    lines = ops.reshape(x, [6, 8, 10])
    middle = ops.constant(3, DType.int64, DeviceRef.CPU())
    for kind in ("kth", "median", "nanmedian"):
        settings = {"kind": kind}
        values = [lines, middle]
        results += ops.custom("tmb_order_statistic", device, values, both([6, 1, 10]), settings)
    return [r.tensor for r in results]


def searched(x: TensorValue) -> list[TensorValue]:
    rows = ops.reshape(x, [6, 80])
    none = ops.broadcast_to(ops.constant(0, DType.int64, DeviceRef.CPU()).to(x.device), [0, 0])
    places = TensorType(DType.int32, [6, 80], x.device)
    settings = {"right": True}
    results = ops.custom("tmb_searchsorted", x.device, [rows, rows, none], [places], settings)
    return [r.tensor for r in results]


def bags(x: TensorValue) -> list[TensorValue]:
    rows = ops.reshape(x, [6, 80])
    numbers = ops.broadcast_to(ops.constant(0, DType.int64, DeviceRef.CPU()).to(x.device), [5])
    scales = ops.reshape(x[0, 0, 0, 0, 0:5], [5])
    shape = [TensorType(x.dtype, [5, 80], x.device)]
    shape += [TensorType(DType.int64, s, x.device) for s in ([5], [5], [5, 80])]
    padding = ops.constant(-1, DType.int64, DeviceRef.CPU())
    values = [rows, numbers, numbers, scales, padding]
    results = []
    for kind in ("mean", "max"):
        results += ops.custom("tmb_embedding_bag", x.device, values, shape, {"kind": kind})
    lines = ops.reshape(x, [5, 12, 8])
    sizes = ops.reshape(numbers, [5, 1])
    out = TensorType(x.dtype, [5, 1, 8], x.device)
    settings = {"kind": "mean", "lengths": True}
    values = [lines, sizes, scales]
    results += ops.custom("tmb_segment_reduce", x.device, values, [out], settings)
    return [r.tensor for r in results]


def distances(x: TensorValue) -> list[TensorValue]:
    rows = ops.reshape(x, [1, 6, 80])
    p = ops.constant(3.0, DType.float64, DeviceRef.CPU())
    results = []
    for kind in ("zero", "one", "two", "inf", "other"):
        out = TensorType(x.dtype, [1, 6, 6], x.device)
        settings = {"kind": kind}
        results += ops.custom("tmb_cdist", x.device, [rows, rows, p], [out], settings)
    pairs = TensorType(x.dtype, [15], x.device)
    flat = ops.reshape(x, [6, 80])
    results += ops.custom("tmb_pdist", x.device, [flat, p], [pairs], {"kind": "other"})
    return [r.tensor for r in results]


def lines(x: TensorValue) -> list[TensorValue]:
    indices = TensorType(DType.int64, x.shape, x.device)
    results = []
    for kind in ("prod", "logsumexp"):
        settings = {"axis": 1, "kind": kind}
        results += ops.custom("tmb_scan", x.device, [x], [x.type], settings)
    settings = {"axis": 1, "least": True}
    results += ops.custom("tmb_running_extreme", x.device, [x], [x.type, indices], settings)
    return [r.tensor for r in results]


def elementary(x: TensorValue) -> list[TensorValue]:
    wide = ops.cast(x, DType.float64)
    number = ops.constant(2.5, DType.float64, DeviceRef.CPU())
    unary = ["exp2", "expm1", "log10", "tan", "sinc", "acos", "tanh", "asinh", "erfc", "mantissa"]
    calls = [("tmb_unary", [x], {"kind": kind}) for kind in unary]
    calls += [("tmb_unary", [wide], {"kind": kind}) for kind in ("sin", "atanh")]
    calls += [("tmb_binary", [x, x], {"kind": kind}) for kind in ("atan2", "hypot", "logaddexp")]
    calls += [
        ("tmb_binary_scalar", [v, number], {"kind": "pow", "first": False}) for v in (x, wide)
    ]
    results = [ops.custom(n, x.device, v, [v[0].type], settings)[0] for n, v, settings in calls]
    for name, dtype in (("tmb_exponent", DType.int32), ("tmb_sign_bit", DType.bool)):
        results += ops.custom(name, x.device, [x], [TensorType(dtype, x.shape, x.device)])
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


LIBRARIES = ("base", "unary", "sorting", "searching", "bags", "distance", "fft")
BUILDERS = (pooled, lines, elementary, ordered, searched, bags, distances, transformed)


def main(api: str, architecture: str, out: str) -> None:
    driver.set_virtual_device_api(api)
    driver.set_virtual_device_target_arch(architecture)
    driver.set_virtual_device_count(1)

    from torch_max_backend.compile.kernels import kernel_library_path
    from torch_max_backend.compile.module import compile_module, serialized

    module = Module()
    libraries = [kernel_library_path(name) for name in LIBRARIES]
    for i, build in enumerate(BUILDERS):
        x = TensorType(DType.float32, [2, 3, 1, 8, 10], DeviceRef.GPU())
        with Graph(f"g{i}", input_types=[x], module=module, custom_extensions=libraries) as graph:
            graph.output(*build(graph.inputs[0].tensor))
    Path(out).write_bytes(serialized(compile_module(module, libraries, f"for {architecture}")))
    sys.stdout.flush()
    os._exit(0)  # A process with virtual devices aborts in its exit handlers.


if __name__ == "__main__":
    main(*sys.argv[1:4])
