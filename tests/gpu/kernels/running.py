"""Running products, sums and extremes."""

from __future__ import annotations

from max.dtype import DType
from max.graph import TensorType, TensorValue, ops


def lines(x: TensorValue) -> list[TensorValue]:
    x = ops.reshape(x, [2, 3, 80])
    indices = TensorType(DType.int64, x.shape, x.device)
    results = []
    for kind in ("prod", "logsumexp"):
        results += ops.custom("tmb_scan", x.device, [x], [x.type], {"kind": kind})
    least = {"least": True}
    results += ops.custom("tmb_running_extreme", x.device, [x], [x.type, indices], least)
    return [r.tensor for r in results]


LIBRARIES = ()
BUILDERS = (lines,)
