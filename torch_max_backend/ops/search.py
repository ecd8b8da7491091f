"""Places in sorted boundaries, and counts by value."""

from __future__ import annotations

import math

import numpy as np
import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.bank import nothing
from torch_max_backend.ops.common.data_sizes import numbers, on_cpu
from torch_max_backend.ops.common.positions import product, scalar
from torch_max_backend.ops.common.promotion import (
    Operand,
    as_operand,
    constant,
    full,
    result_type,
    to_dtype,
)
from torch_max_backend.ops.common.reduce import greatest, is_empty, least
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


def _places(
    boundaries: TensorValue, values: Operand, right: bool, order: TensorValue | None = None
) -> TensorValue:
    """Where the values would stand among the boundaries, of the node's expected shape."""
    spec = expected()
    if is_empty(spec.shape):
        return full(0, spec.dtype, spec.shape, spec.device)
    dtype = result_type(boundaries, values)
    n = boundaries.shape[-1]
    rows = product(boundaries.shape[:-1])
    wide = as_operand(values, dtype, boundaries.device)
    flat = boundaries.rank == 1
    shape = [1, product(wide.shape)] if flat else [rows, wide.shape[-1]]
    lines = [to_dtype(boundaries, dtype), wide]
    if dtype == DType.bool:
        lines = [to_dtype(v, DType.uint8) for v in lines]
    sorter = nothing(DType.int64, 2) if order is None else ops.reshape(order, [rows, n])
    (found,) = ops.custom(
        "tmb_searchsorted",
        boundaries.device,
        [ops.reshape(lines[0], [rows, n]), ops.reshape(lines[1], shape), sorter],
        [TensorType(spec.dtype, shape, boundaries.device)],
        {"right": right},
    )
    return ops.reshape(found.tensor, spec.shape)


@map_to(aten.searchsorted.Tensor, aten.searchsorted.Scalar, kernels="sorting.searching")
def searchsorted(
    sorted_sequence: TensorValue,
    self: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: TensorValue | None = None,
) -> TensorValue:
    """searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False,
    bool right=False, str? side=None, Tensor? sorter=None) -> Tensor"""
    return _places(sorted_sequence, self, right or side == "right", sorter)


def _in_one_row(boundaries: torch.Tensor) -> Refusal | None:
    return None if boundaries.dim() == 1 else Refusal("boundaries must have 1 dimension")


@map_to(
    aten.bucketize.Tensor, aten.bucketize.Scalar, kernels="sorting.searching", supports=_in_one_row
)
def bucketize(
    self: Operand, boundaries: TensorValue, *, out_int32: bool = False, right: bool = False
) -> TensorValue:
    """bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False,
    bool right=False) -> Tensor"""
    return _places(boundaries, self, right)


# Histograms


def _counts(
    points: TensorValue,
    edges: TensorValue,
    sizes: list[int],
    weight: TensorValue | None,
    how: str,
) -> TensorValue:
    """The histogram of ``[n, dims]`` points as a flat value. ``sizes``: bins of each dimension."""
    n = points.shape[0]
    weights = nothing(points.dtype) if weight is None else ops.reshape(weight, [n])
    counts = constant_list([s + 1 for s in sizes])
    kind = TensorType(points.dtype, [math.prod(sizes)], points.device)
    values = [points, edges, counts, to_dtype(weights, points.dtype)]
    (found,) = ops.custom("tmb_histogram", points.device, values, [kind], {"how": how})
    return found.tensor


def constant_list(values: list[int]) -> TensorValue:
    """A constant int64 value of one dimension."""
    return ops.constant(np.array(values, dtype=np.int64), DType.int64, DeviceRef.CPU())


def _range(
    x: TensorValue, low: float, high: float, given: bool, margin: float
) -> tuple[TensorValue, TensorValue]:
    """The ends of a histogram's range as 0-d values: of the data unless they are given, and each
    further by a margin where they are equal."""
    if not given and is_empty(x.shape):
        low, high, given = 0.0, 1.0, True
    if given:
        if low == high:
            low, high = low - margin, high + margin
        return constant(low, x.dtype, x.device), constant(high, x.dtype, x.device)
    first, last = ops.reshape(least(x, 0), []), ops.reshape(greatest(x, 0), [])
    same = ops.equal(first, last)
    more = constant(margin, x.dtype, x.device)
    return ops.where(same, first - more, first), ops.where(same, last + more, last)


@map_to(aten.histc.default, kernels=("sorting.searching", "base"), supports=on_cpu)
def histc(
    self: TensorValue, bins: int = 100, min: int | float = 0, max: int | float = 0
) -> TensorValue:
    """histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor"""
    flat = ops.reshape(self, [product(self.shape)])
    wide = flat if flat.dtype.is_float() else to_dtype(flat, DType.float64)
    ends = _range(wide, min, max, given=min != max, margin=1.0)
    edges = ops.stack(list(ends))
    points = ops.reshape(wide, [wide.shape[0], 1])
    return to_dtype(_counts(points, edges, [bins], None, "linear"), self.dtype)


def _edges(low: TensorValue, high: TensorValue, bins: int) -> TensorValue:
    """``bins + 1`` evenly spaced numbers, from either end to the middle as torch's linspace."""
    dtype, device = low.dtype, low.device
    steps = ops.constant(np.arange(bins + 1).astype(dtype.to_numpy()), dtype, device)
    step = ops.div(high - low, constant(bins, dtype, device))
    from_low = low + step * steps
    from_high = high - step * (constant(bins, dtype, device) - steps)
    nearer = ops.constant(np.arange(bins + 1) < (bins + 1) // 2, DType.bool, device)
    return ops.where(nearer, from_low, from_high)


def _density(hist: TensorValue, widths: list[TensorValue]) -> TensorValue:
    """Divided by the sum and by the volumes of the bins."""
    flat = ops.reshape(hist, [product(hist.shape)])
    hist = hist / ops.reshape(ops.sum(flat, 0), [1] * hist.rank)
    for i, width in enumerate(widths):
        hist = hist / ops.reshape(width, [-1 if i == j else 1 for j in range(hist.rank)])
    return hist


def _widths(edges: TensorValue, bins: int) -> TensorValue:
    return edges[1 : bins + 1] - edges[0:bins]


def _all_edges(
    points: TensorValue, sizes: list[int], range_: list[float] | None
) -> list[TensorValue]:
    found = []
    for d, bins in enumerate(sizes):
        column = ops.reshape(points[:, d : d + 1], [points.shape[0]])
        low, high = range_[2 * d : 2 * d + 2] if range_ else (0.0, 0.0)
        ends = _range(column, low, high, given=range_ is not None, margin=0.5)
        found.append(_edges(*ends, bins))
    return found


def _histogram(
    points: TensorValue,
    edges: list[TensorValue],
    weight: TensorValue | None,
    density: bool,
    how: str,
) -> TensorValue:
    sizes = [int(e.shape[0]) - 1 for e in edges]
    flat = _counts(points, ops.concat(edges) if len(edges) > 1 else edges[0], sizes, weight, how)
    hist = ops.reshape(flat, sizes)
    if density:
        hist = _density(hist, [_widths(e, b) for e, b in zip(edges, sizes, strict=True)])
    return hist


def _points(x: TensorValue) -> TensorValue:
    """The points of a tensor whose last dimension holds their coordinates."""
    return ops.reshape(x, [product(x.shape[:-1]), x.shape[-1]])


def _column(x: TensorValue) -> TensorValue:
    return ops.reshape(x, [product(x.shape), 1])


@map_to(aten.histogram.bin_ct, kernels=("sorting.searching", "base"), supports=on_cpu)
def histogram(
    self: TensorValue,
    bins: int = 100,
    *,
    range: list[float] | None = None,
    weight: TensorValue | None = None,
    density: bool = False,
) -> tuple[TensorValue, TensorValue]:
    """histogram.bin_ct(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)"""
    points = _column(self)
    edges = _all_edges(points, [bins], range)
    return _histogram(points, edges, weight, density, "uniform"), edges[0]


def _static_bins(self: torch.Tensor, bins: torch.Tensor | list[torch.Tensor]) -> Refusal | None:
    given = bins if isinstance(bins, list) else [bins]
    if not all(isinstance(b.shape[0], int) for b in given):
        return Refusal("the number of bins has to be known when the graph is compiled")
    return on_cpu(self)


@map_to(aten.histogram.bins_tensor, kernels=("sorting.searching", "base"), supports=_static_bins)
def histogram_of_edges(
    self: TensorValue,
    bins: TensorValue,
    *,
    weight: TensorValue | None = None,
    density: bool = False,
) -> tuple[TensorValue, TensorValue]:
    """histogram.bins_tensor(Tensor self, Tensor bins, *, Tensor? weight=None,
    bool density=False) -> (Tensor hist, Tensor bin_edges)"""
    return _histogram(_column(self), [bins], weight, density, "search"), bins


@map_to(
    aten._histogramdd_from_bin_cts.default, kernels=("sorting.searching", "base"), supports=on_cpu
)
def histogramdd(
    self: TensorValue,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: TensorValue | None = None,
    density: bool = False,
) -> TensorValue:
    """_histogramdd_from_bin_cts(Tensor self, int[] bins, *, float[]? range=None,
    Tensor? weight=None, bool density=False) -> Tensor"""
    points = _points(self)
    return _histogram(points, _all_edges(points, bins, range), weight, density, "uniform")


@map_to(aten._histogramdd_bin_edges.default, supports=on_cpu)
def histogramdd_edges(
    self: TensorValue,
    bins: list[int],
    *,
    range: list[float] | None = None,
    weight: TensorValue | None = None,
    density: bool = False,
) -> list[TensorValue]:
    """_histogramdd_bin_edges(Tensor self, int[] bins, *, float[]? range=None,
    Tensor? weight=None, bool density=False) -> Tensor[]"""
    return _all_edges(_points(self), bins, range)


@map_to(
    aten._histogramdd_from_bin_tensors.default,
    kernels=("sorting.searching", "base"),
    supports=_static_bins,
)
def histogramdd_of_edges(
    self: TensorValue,
    bins: list[TensorValue],
    *,
    weight: TensorValue | None = None,
    density: bool = False,
) -> TensorValue:
    """_histogramdd_from_bin_tensors(Tensor self, Tensor[] bins, *, Tensor? weight=None,
    bool density=False) -> Tensor"""
    return _histogram(_points(self), bins, weight, density, "search")


# Counts whose number depends on data


@map_to(aten.bincount.default, kernels="sorting.searching", supports=on_cpu, sizes_from_data=True)
def bincount(
    self: TensorValue, weights: TensorValue | None = None, minlength: int | Dim = 0
) -> TensorValue:
    """bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor"""
    spec = expected()
    one = TensorType(DType.int64, [1], self.device)
    (count,) = ops.custom("tmb_bincount_size", self.device, [self, scalar(minlength)], [one])
    some = numbers(count.tensor, spec.shape[0])
    given = nothing(spec.dtype) if weights is None else to_dtype(weights, spec.dtype)
    kind = TensorType(spec.dtype, spec.shape, self.device)
    return ops.custom("tmb_bincount", self.device, [self, given, some], [kind])[0].tensor


def _repeats_on_cpu(repeats: torch.Tensor) -> Refusal | None:
    return on_cpu(repeats)


@map_to(
    aten.repeat_interleave.Tensor,
    kernels="sorting.searching",
    supports=_repeats_on_cpu,
    sizes_from_data=True,
)
def repeat_interleave(repeats: TensorValue, *, output_size: int | Dim | None = None) -> TensorValue:
    """repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor"""
    spec = expected()
    if output_size is None:
        one = TensorType(DType.int64, [1], repeats.device)
        (count,) = ops.custom("tmb_total", repeats.device, [repeats], [one])
        some = numbers(count.tensor, spec.shape[0])
    else:
        some = full(0, DType.int64, spec.shape, repeats.device)
    kind = TensorType(spec.dtype, spec.shape, repeats.device)
    return ops.custom("tmb_repeated", repeats.device, [repeats, some], [kind])[0].tensor
