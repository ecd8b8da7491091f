"""The gradient of ``segment_reduce``."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torch_max_backend.graph.shapes import is_empty

aten = torch.ops.aten


def segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> Tensor:
    """The gradient of the data (``aten::_segment_reduce_backward``).

    As in eager, equal extrema of a segment share its gradient if that is positive, and get all of
    it each if it is negative.
    """
    bounds = lengths if offsets is None else offsets
    if is_empty(data) or is_empty(grad) or bounds is None:
        return torch.zeros_like(data)
    axis %= data.dim()
    outer, n = math.prod(data.shape[:axis]), data.shape[axis]
    segments, inner = grad.shape[axis], math.prod(data.shape[axis + 1 :])
    bounds = bounds.reshape(outer, -1).to(torch.int64)
    starts, ends = (bounds[:, :-1], bounds[:, 1:]) if offsets is not None else _edges(bounds)
    places = torch.arange(n, device=data.device).expand(outer, n).contiguous()
    found = torch.searchsorted(ends.contiguous(), places, right=True)
    of = found.clamp(max=segments - 1)
    taken = ((found < segments) & (places >= starts.gather(1, of))).unsqueeze(2)
    index = of.unsqueeze(2).expand(outer, n, inner)

    def each(x: Tensor) -> Tensor:
        return x.reshape(outer, segments, inner).gather(1, index)

    def total(x: Tensor) -> Tensor:
        """The sum over the segment of each row."""
        zero = x.new_zeros(outer, segments, inner)
        return zero.scatter_add(1, index, torch.where(taken, x, 0)).gather(1, index)

    x, g = data.reshape(outer, n, inner), each(grad)
    if reduce == "mean":
        g = g / (ends - starts).gather(1, of).unsqueeze(2)
    elif reduce in ("max", "min", "amax", "amin"):
        equal = x.isnan() | (x == each(output))
        often = total(equal.to(torch.int64))
        g = torch.where(equal, torch.where(g > 0, g / often, g), 0)
    elif reduce == "prod":
        zero, nan = x == 0, x.isnan()
        special = zero | nan
        options = {"lengths": lengths, "offsets": offsets, "axis": axis, "initial": initial}
        plain = torch.where(special, 1, x).reshape(data.shape)
        # Of the other elements of a segment, where dividing by an element does not give it.
        rest = each(aten.segment_reduce(plain, "prod", unsafe=True, **options))
        rest = torch.where(total(zero.to(torch.int64)) - zero.to(torch.int64) > 0, rest * 0, rest)
        lost = total(nan.to(torch.int64)) - nan.to(torch.int64) > 0
        rest = torch.where(lost, torch.nan, rest)
        g = torch.where(special, g * rest, g * each(output) / x)
    return torch.where(taken, g, 0).to(data.dtype).reshape(data.shape)


def _edges(lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Where segments that lie one behind the other begin and end."""
    ends = lengths.cumsum(1)
    return ends - lengths, ends
