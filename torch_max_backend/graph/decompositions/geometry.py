"""Operators on points of a plane or of space, taken apart into formulas of their coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def cross(self: torch.Tensor, other: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor"""
    same = self.dim() == other.dim() and self.dtype == other.dtype
    if not same or self.shape[dim] != 3 or other.shape[dim] != 3:
        return NotImplemented  # torch's own checks say what is wrong
    (a, b, c), (x, y, z) = (t.unbind(dim) for t in torch.broadcast_tensors(self, other))
    return torch.stack([b * z - c * y, c * x - a * z, a * y - b * x], dim)


def affine_grid_generator(
    theta: torch.Tensor, size: Sequence[int], align_corners: bool
) -> torch.Tensor:
    """affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor"""
    batch, _, *spatial = size
    wide = theta.float() if theta.dtype.itemsize < 4 else theta
    count = len(spatial)
    # The last dimension of an image is the first coordinate.
    lines = [
        _places(wide, n, align_corners).view([n, *[1] * i]) for i, n in enumerate(reversed(spatial))
    ]
    rows = []
    for row in range(count):
        factors = wide[:, row].view([batch, *[1] * count, count + 1]).unbind(-1)
        parts = [line * factor for line, factor in zip(lines, factors, strict=False)]
        rows.append(sum(parts[1:], parts[0]) + factors[-1])
    return torch.stack(rows, -1).to(theta.dtype)


def affine_grid_backward(
    grad: torch.Tensor, size: Sequence[int], align_corners: bool
) -> torch.Tensor:
    """affine_grid_generator_backward(Tensor grad, SymInt[] size, bool align_corners) -> Tensor

    A coordinate is the same across all but one dimension, along which gradients are summed up
    first: torch's own formula multiplies by a matrix of all places."""
    _, _, *spatial = size
    wide = grad.float() if grad.dtype.itemsize < 4 else grad
    count = len(spatial)
    columns = []
    for dim, n in reversed(list(enumerate(spatial, start=1))):
        others = [d for d in range(1, count + 1) if d != dim]
        line = wide.sum(others)
        columns.append((line * _places(wide, n, align_corners).view([n, 1])).sum(1))
    columns.append(line.sum(1))
    return torch.stack(columns, -1).to(grad.dtype)


def _places(like: torch.Tensor, steps: int, align_corners: bool) -> torch.Tensor:
    """The middles of so many equal parts of -1 to 1; or places from the one end to the other."""
    if steps <= 1:
        return like.new_zeros([steps])
    end = 1 if align_corners else (steps - 1) / steps
    return torch.linspace(-end, end, steps, dtype=like.dtype, device=like.device)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.affine_grid_generator.default: affine_grid_generator,
    aten.linalg_cross.default: cross,
}
