"""Triangles of matrices."""

from __future__ import annotations

import torch
from max.graph import Dim, TensorValue, ops

from torch_max_backend.ops.common.positions import Size, iota, is_zero, on_device
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


def _keep(x: TensorValue, diagonal: Size, *, lower: bool) -> TensorValue:
    """The elements on one side of a diagonal (included); zero elsewhere."""
    if any(is_zero(s) for s in x.shape):
        return x
    rows = ops.unsqueeze(iota(x.shape[-2], x.device), 1) + on_device(diagonal, x.device)
    columns = ops.unsqueeze(iota(x.shape[-1], x.device), 0)
    kept = ops.greater_equal(rows, columns) if lower else ops.greater_equal(columns, rows)
    zero = full(0, x.dtype, x.shape, x.device)
    return ops.where(ops.broadcast_to(kept, x.shape), x, zero)


@map_to(aten.tril.default, native16=True)
def tril(self: TensorValue, diagonal: int | Dim = 0) -> TensorValue:
    """tril(Tensor self, SymInt diagonal=0) -> Tensor"""
    return _keep(self, diagonal, lower=True)


@map_to(aten.triu.default, native16=True)
def triu(self: TensorValue, diagonal: int | Dim = 0) -> TensorValue:
    """triu(Tensor self, SymInt diagonal=0) -> Tensor"""
    return _keep(self, diagonal, lower=False)
