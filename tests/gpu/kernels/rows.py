"""Rows beside rows: bags, distances, transforms."""

from __future__ import annotations

from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from tests.gpu.kernels.support import numbers


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


def transformed(x: TensorValue) -> list[TensorValue]:
    lines = ops.reshape(x, [48, 10])
    scratch = [TensorType(x.dtype, [size], x.device) for size in (48 * 10 * 2, 48 * 10 * 2, 20)]
    normalization, height = numbers(1, 1)
    results = []
    for kind, row in (("c2c", 10), ("r2c", 12), ("r2c_full", 20), ("c2r", 8)):
        types = [TensorType(x.dtype, [48, row], x.device), *scratch]
        settings = {"kind": kind, "inverse": kind == "c2r"}
        operands = [lines, normalization, height]
        made = ops.custom("tmb_fft", x.device, operands, types, settings)
        results.append(made[0].tensor)
    return results


LIBRARIES = ("reduction.bags", "linalg.distance", "fft.fft")
BUILDERS = (bags, distances, transformed)
