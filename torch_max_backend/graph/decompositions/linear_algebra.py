"""Operators of linear algebra that are better taken apart than lowered, and that torch takes apart
in C++ only, where no trace sees it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def pinv(
    self: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> torch.Tensor:
    """linalg_pinv.atol_rtol_tensor(Tensor self, *, Tensor? atol=None, Tensor? rtol=None,
    bool hermitian=False) -> Tensor"""
    rows, columns = self.shape[-2:]
    if self.numel() == 0:
        return self.new_zeros([*self.shape[:-2], columns, rows])
    if rtol is None:
        rtol = self.new_full([], torch.finfo(self.dtype).eps, dtype=torch.float64)
        rtol = rtol * max(rows, columns)
        if atol is not None:
            rtol = torch.where(atol > 0, torch.zeros_like(rtol), rtol)
    if atol is None:
        atol = self.new_zeros([], dtype=torch.float64)
    if hermitian:
        values, vectors = torch.linalg.eigh(self)
        left, right, sizes = vectors, vectors, values.abs()
    else:
        right, values, transposed = torch.linalg.svd(self, full_matrices=False)
        left, sizes = transposed.mT, values
    largest = sizes.amax(-1, keepdim=True)
    limit = torch.maximum(atol.unsqueeze(-1), rtol.unsqueeze(-1) * largest)
    inverse = torch.where(sizes > limit, values.reciprocal(), torch.zeros_like(values))
    return (left * inverse.unsqueeze(-2)) @ right.mT


def polar(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """linalg_polar(Tensor A) -> (Tensor U, Tensor H)"""
    left, sizes, right = torch.linalg.svd(A, full_matrices=False)
    return left @ right, right.mH @ (sizes.unsqueeze(-1) * right)


def matrix_sqrth(self: torch.Tensor) -> torch.Tensor:
    """linalg_matrix_sqrth(Tensor self) -> Tensor"""
    values, vectors = torch.linalg.eigh(self)
    return (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)) @ vectors.mH


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {aten.linalg_pinv.atol_rtol_tensor: pinv}
# Where torch has them.
for _name, _function in (("linalg_polar", polar), ("linalg_matrix_sqrth", matrix_sqrth)):
    if hasattr(aten, _name):
        DECOMPOSITIONS[getattr(aten, _name).default] = _function
