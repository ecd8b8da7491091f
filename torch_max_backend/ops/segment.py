"""Reductions of segments of a dimension."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.axes import axis as axis_of
from torch_max_backend.ops.common.bank import nothing
from torch_max_backend.ops.common.positions import product
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

_NAMES = {"max": "amax", "min": "amin"}


def _bounded(lengths: torch.Tensor | None, offsets: torch.Tensor | None) -> Refusal | None:
    if lengths is None and offsets is None:
        return Refusal("segments are given by lengths or offsets")
    return None


@map_to(aten.segment_reduce.default, kernels="reduction.bags", supports=_bounded)
def segment_reduce(
    data: TensorValue,
    reduce: str,
    *,
    lengths: TensorValue | None = None,
    indices: TensorValue | None = None,
    offsets: TensorValue | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: int | float | None = None,
) -> TensorValue:
    """segment_reduce(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None,
    Tensor? offsets=None, int axis=0, bool unsafe=False, Scalar? initial=None) -> Tensor"""
    shape = expected().shape
    if is_empty(shape):
        return full(0, data.dtype, shape, data.device)
    at = axis_of(axis, data.rank)
    bounds = lengths if offsets is None else offsets
    assert bounds is not None
    outer, inner = product(data.shape[:at]), product(data.shape[at + 1 :])
    start = nothing(data.dtype)
    if initial is not None:
        start = full(initial, data.dtype, [1], data.device)
    (found,) = ops.custom(
        "tmb_segment_reduce",
        data.device,
        [
            ops.reshape(data, [outer, data.shape[at], inner]),
            ops.reshape(to_dtype(bounds, DType.int64), [outer, bounds.shape[-1]]),
            start,
        ],
        [TensorType(data.dtype, [outer, shape[at], inner], data.device)],
        {"kind": _NAMES.get(reduce, reduce), "lengths": offsets is None},
    )
    return ops.reshape(found.tensor, shape)
