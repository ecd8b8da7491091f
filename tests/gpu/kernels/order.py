"""Lines: sorting, searching, what is distinct."""

from __future__ import annotations

from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops


def ordered(x: TensorValue) -> list[TensorValue]:
    rows, device = ops.reshape(x, [48, 10]), x.device
    indices = TensorType(DType.int64, rows.shape, device)

    def both(shape: list[int]) -> list[TensorType]:
        return [TensorType(d, shape, device) for d in (x.dtype, DType.int64)]

    order = {"descending": True}
    results = ops.custom("tmb_sort", device, [rows], [rows.type, indices] * 2, order)
    results += ops.custom("tmb_topk", device, [rows], both([48, 3]), order)
    results += ops.custom("tmb_mode", device, results[:2], both([48, 1]))
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


def distinct(x: TensorValue) -> list[TensorValue]:
    rows, count = ops.reshape(x, [60, 8]), TensorType(DType.int64, [1], x.device)
    line = TensorType(DType.int64, [60], x.device)
    order = ops.custom("tmb_order_rows", x.device, [rows], [line, line])[0]
    results = ops.custom("tmb_runs", x.device, [rows, order], [line, line, count])
    results += ops.custom("tmb_run_starts", x.device, [results[0], order], [line, line])
    return [r.tensor for r in results]


LIBRARIES = ("sorting.sort", "sorting.searching")
BUILDERS = (ordered, searched, distinct)
