"""Cholesky and LU factorizations and what follows from them, by kernels of
``mojo_kernels/linalg/factorizations.mojo``."""

from __future__ import annotations

from functools import cache

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.tracing import disable_current_modes
from torch_max_backend.convert.context import current_node, expected, is_used
from torch_max_backend.ops.common.matrices import (
    kernel,
    nothing,
    over_batch,
    raise_unless_zero,
    stacked,
    transposed,
    unit,
)
from torch_max_backend.ops.common.positions import Size, iota, product, static, window
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.ops.triangle import tril, triu
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten


@map_to(aten._linalg_check_errors.default, kernels="linalg.factorizations")
def linalg_check_errors(info: TensorValue, api_name: str, *, is_matrix: bool) -> None:
    """_linalg_check_errors(Tensor info, str api_name, *, bool is_matrix) -> ()"""
    if not is_empty(info.shape):
        raise_unless_zero(info, api_name, single=is_matrix)


def _cholesky(a: TensorValue, upper: bool) -> tuple[TensorValue, TensorValue]:
    if is_empty(a.shape):
        info = full(0, DType.int32, a.shape[:-2], a.device)
        return full(0, a.dtype, a.shape, a.device), info
    flat = stacked(a)
    types = [(a.dtype, flat.shape), (DType.int32, flat.shape[:1])]
    factor, info = kernel("tmb_cholesky", [flat], types, {"upper": upper})
    return ops.reshape(factor, a.shape), ops.reshape(info, a.shape[:-2])


@map_to(aten.linalg_cholesky_ex.default, kernels="linalg.factorizations")
def linalg_cholesky_ex(
    self: TensorValue, *, upper: bool, check_errors: bool
) -> tuple[TensorValue, TensorValue]:
    """linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False)
    -> (Tensor L, Tensor info)"""
    factor, info = _cholesky(self, upper)
    if check_errors and not is_empty(info.shape):
        raise_unless_zero(info, "linalg.cholesky_ex", single=self.rank == 2)
    return factor, info


def _solve_triangular(
    a: TensorValue, b: TensorValue, *, upper: bool, transpose: bool = False, unit: bool = False
) -> TensorValue:
    """``op(a) x = b`` of ``[batch, n, n]`` and ``[batch, n, k]``."""
    settings = {"upper": upper, "transposed": transpose, "unit": unit}
    return kernel("tmb_solve_triangular", [a, b], [(b.dtype, b.shape)], settings)[0]


def _cholesky_solve(b: TensorValue, factor: TensorValue, upper: bool) -> TensorValue:
    """``a x = b`` from a Cholesky factor of ``a``; all batches stacked."""
    first = _solve_triangular(factor, b, upper=upper, transpose=upper)
    return _solve_triangular(factor, first, upper=upper, transpose=not upper)


@map_to(aten.cholesky_solve.default, kernels="linalg.factorizations")
def cholesky_solve(self: TensorValue, input2: TensorValue, upper: bool) -> TensorValue:
    """cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor"""
    shape = expected().shape
    if is_empty(shape):
        return full(0, self.dtype, shape, self.device)
    b, factor = over_batch(self, shape[:-2]), over_batch(input2, shape[:-2])
    return ops.reshape(_cholesky_solve(b, factor, upper), shape)


@map_to(aten._cholesky_solve_helper.default, kernels="linalg.factorizations")
def cholesky_solve_helper(self: TensorValue, A: TensorValue, upper: bool) -> TensorValue:
    """_cholesky_solve_helper(Tensor self, Tensor A, bool upper) -> Tensor"""
    return cholesky_solve(self, A, upper)


@map_to(aten.cholesky_inverse.default, kernels="linalg.factorizations")
def cholesky_inverse(self: TensorValue, upper: bool) -> TensorValue:
    """cholesky_inverse(Tensor self, bool upper=False) -> Tensor"""
    if is_empty(self.shape):
        return full(0, self.dtype, self.shape, self.device)
    factor = stacked(self)
    (info,) = kernel("tmb_zero_on_diagonal", [factor], [(DType.int32, factor.shape[:1])])
    raise_unless_zero(info, "cholesky_inverse", single=self.rank == 2)
    ones = ops.broadcast_to(unit(self.shape[-1], self.shape[-1], self), factor.shape)
    return ops.reshape(_cholesky_solve(ones, factor, upper), self.shape)


@map_to(aten.linalg_solve_triangular.default, kernels="linalg.factorizations")
def linalg_solve_triangular(
    self: TensorValue, B: TensorValue, *, upper: bool, left: bool, unitriangular: bool
) -> TensorValue:
    """linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True,
    bool unitriangular=False) -> Tensor"""
    shape = expected().shape
    if is_empty(shape):
        return full(0, B.dtype, shape, B.device)
    a, b = over_batch(self, shape[:-2]), over_batch(B, shape[:-2])
    if left:
        x = _solve_triangular(a, b, upper=upper, unit=unitriangular)
    else:
        # x a = b is a^T x^T = b^T.
        x = _solve_triangular(a, transposed(b), upper=upper, transpose=True, unit=unitriangular)
        x = transposed(x)
    return ops.reshape(x, shape)


@map_to(aten.triangular_solve.default, kernels="linalg.factorizations")
def triangular_solve(
    self: TensorValue, A: TensorValue, upper: bool, transpose: bool, unitriangular: bool
) -> tuple[TensorValue, TensorValue]:
    """triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False,
    bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)"""
    shape, kept = expected(0).shape, expected(1).shape
    a = over_batch(A, kept[:-2])
    if is_empty(shape):
        return full(0, self.dtype, shape, self.device), ops.reshape(a, kept)
    b = over_batch(self, shape[:-2])
    x = _solve_triangular(a, b, upper=upper, transpose=transpose, unit=unitriangular)
    return ops.reshape(x, shape), ops.reshape(a, kept)


def _lu(
    a: TensorValue, small: Size, pivot: bool = True
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """``[batch, m, n]`` and the smaller of m and n to both factors in one, pivots and info."""
    if is_empty(a.shape):
        made = [(a.dtype, a.shape), (DType.int32, [a.shape[0], small]), (DType.int32, a.shape[:1])]
        factors, pivots, info = (full(0, dtype, shape, a.device) for dtype, shape in made)
        return factors, pivots, info
    types = [(a.dtype, a.shape), (DType.int32, [a.shape[0], small]), (DType.int32, a.shape[:1])]
    factors, pivots, info = kernel("tmb_lu", [a], types, {"pivoting": pivot})
    return factors, pivots, info


def _smaller(a: TensorValue) -> Size:
    """The smaller size of matrices: what torch's metadata promises where it is symbolic."""
    rows, columns = a.shape[-2:]
    if rows == columns:
        return rows
    known = [n for n in (static(rows), static(columns)) if n is not None]
    if len(known) == 2:
        return min(known)
    # The pivots of linalg_lu_factor_ex, or the columns of L of linalg_lu.
    return expected(1).shape[-1]


def _no_pivoting(self: torch.Tensor, pivot: bool) -> Refusal | None:
    if not pivot and self.device.type == "cpu":
        return Refusal("torch has no LU factorization without pivoting on CPU")
    return None


@map_to(
    aten.linalg_lu_factor_ex.default,
    kernels="linalg.factorizations",
    supports=lambda A, pivot: _no_pivoting(A, pivot),
)
def linalg_lu_factor_ex(
    A: TensorValue, *, pivot: bool, check_errors: bool
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """linalg_lu_factor_ex(Tensor A, *, bool pivot=True, bool check_errors=False)
    -> (Tensor LU, Tensor pivots, Tensor info)"""
    factors, pivots, info = _lu(stacked(A), _smaller(A), pivot)
    info = ops.reshape(info, A.shape[:-2])
    if check_errors and not is_empty(A.shape):
        raise_unless_zero(info, "torch.linalg.lu_factor_ex", single=A.rank == 2)
    return ops.reshape(factors, A.shape), ops.reshape(pivots, expected(1).shape), info


def _permutation(pivots: TensorValue, rows: Size, like: TensorValue) -> TensorValue:
    """``P`` of ``a = P L U``, ``[batch, rows, rows]``."""
    batch = pivots.shape[0]
    (order,) = kernel("tmb_permutation", [pivots], [(DType.int64, [batch, rows])])
    down = ops.reshape(iota(rows, pivots.device), [1, rows, 1])
    ones = ops.equal(down, ops.reshape(order, [batch, 1, rows]))
    return to_dtype(ops.broadcast_to(ones, [batch, rows, rows]), like.dtype)


def _unpacked(factors: TensorValue, small: Size) -> tuple[TensorValue, TensorValue]:
    """``L`` and ``U`` of both in one, ``[batch, m, n]``."""
    left = window(factors, factors.rank - 1, 0, small)
    ones = unit(left.shape[-2], small, factors)
    lower = tril(left, -1) + ops.broadcast_to(ones, left.shape)
    return lower, triu(window(factors, factors.rank - 2, 0, small))


@map_to(
    aten.linalg_lu.default,
    kernels="linalg.factorizations",
    supports=lambda A, pivot: _no_pivoting(A, pivot),
)
def linalg_lu(A: TensorValue, *, pivot: bool) -> tuple[TensorValue, TensorValue, TensorValue]:
    """linalg_lu(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)"""
    factors, pivots, _ = _lu(stacked(A), _smaller(A), pivot)
    p = nothing(A)
    if pivot:
        p = ops.reshape(_permutation(pivots, A.shape[-2], A), expected(0).shape)
    lower, upper = _unpacked(factors, expected(1).shape[-1])
    return p, ops.reshape(lower, expected(1).shape), ops.reshape(upper, expected(2).shape)


@map_to(aten.lu_unpack.default, kernels="linalg.factorizations")
def lu_unpack(
    LU_data: TensorValue, LU_pivots: TensorValue, unpack_data: bool, unpack_pivots: bool
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """lu_unpack(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True,
    bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)"""
    p = lower = upper = nothing(LU_data)
    if unpack_pivots:
        p = _permutation(stacked(LU_pivots, 1), LU_data.shape[-2], LU_data)
        p = ops.reshape(p, expected(0).shape)
    if unpack_data:
        lower, upper = _unpacked(stacked(LU_data), expected(1).shape[-1])
        lower = ops.reshape(lower, expected(1).shape)
        upper = ops.reshape(upper, expected(2).shape)
    return p, lower, upper


def _lu_solve(
    factors: TensorValue, pivots: TensorValue, b: TensorValue, *, left: bool, adjoint: bool
) -> TensorValue:
    """``op(a) x = b`` or ``x op(a) = b``; all batches stacked."""
    if not left:
        b = transposed(b)
    settings = {"transposed": adjoint == left}
    (x,) = kernel("tmb_lu_solve", [factors, pivots, b], [(b.dtype, b.shape)], settings)
    return x if left else transposed(x)


@map_to(aten.linalg_lu_solve.default, kernels="linalg.factorizations")
def linalg_lu_solve(
    LU: TensorValue, pivots: TensorValue, B: TensorValue, *, left: bool, adjoint: bool
) -> TensorValue:
    """linalg_lu_solve(Tensor LU, Tensor pivots, Tensor B, *, bool left=True,
    bool adjoint=False) -> Tensor"""
    shape = expected().shape
    if is_empty(shape):
        return full(0, B.dtype, shape, B.device)
    batch = shape[:-2]
    operands = over_batch(LU, batch), over_batch(pivots, batch, 1), over_batch(B, batch)
    return ops.reshape(_lu_solve(*operands, left=left, adjoint=adjoint), shape)


def _takes_transposed() -> bool:
    """Whether torch factors the transposed matrix, which its formula of the gradient goes by. Which
    operators do so with contiguous matrices depends on its version."""
    node = current_node().node
    return _turns(node.target) and node.args[0].meta["val"].is_contiguous()


@cache
def _turns(op: OpOverload) -> bool:
    """Whether torch's operator factors the transposed of a contiguous matrix."""
    with disable_current_modes():
        matrix = torch.tensor([[2.0, 1.0], [0.0, 1.0]])
        given = (matrix, torch.ones(2)) if op is aten._linalg_solve_ex.default else (matrix,)
        factors = dict(zip((r.name for r in op._schema.returns), op(*given), strict=True))["LU"]
    return bool(factors[0, 1] == 0)


@map_to(aten._linalg_solve_ex.default, kernels="linalg.factorizations")
def linalg_solve_ex(
    A: TensorValue, B: TensorValue, *, left: bool, check_errors: bool
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue]:
    """_linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False)
    -> (Tensor result, Tensor LU, Tensor pivots, Tensor info)"""
    turned = (is_used(1) or is_used(2)) and _takes_transposed()
    factors, pivots, info = _lu(stacked(transposed(A) if turned else A), A.shape[-2])
    shape = expected(0).shape
    if is_empty(shape):
        result = full(0, B.dtype, shape, B.device)
    else:
        vector = len(shape) == A.rank - 1
        b = ops.unsqueeze(B, -1) if vector else B
        batch = shape[:-1] if vector else shape[:-2]
        operands = (
            over_batch(ops.reshape(factors, A.shape), batch),
            over_batch(ops.reshape(pivots, A.shape[:-1]), batch, 1),
            over_batch(b, batch),
        )
        result = ops.reshape(_lu_solve(*operands, left=left, adjoint=turned), shape)
    info = ops.reshape(info, A.shape[:-2])
    if check_errors and not is_empty(A.shape):
        raise_unless_zero(info, "torch.linalg.solve_ex", single=A.rank == 2)
    return result, ops.reshape(factors, A.shape), ops.reshape(pivots, A.shape[:-1]), info


@map_to(aten.linalg_inv_ex.default, kernels="linalg.factorizations")
def linalg_inv_ex(A: TensorValue, *, check_errors: bool) -> tuple[TensorValue, TensorValue]:
    """linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)"""
    if is_empty(A.shape):
        info = full(0, DType.int32, A.shape[:-2], A.device)
        return full(0, A.dtype, A.shape, A.device), info
    flat = stacked(A)
    factors, pivots, info = _lu(flat, A.shape[-2])
    ones = ops.broadcast_to(unit(A.shape[-2], A.shape[-1], A), flat.shape)
    inverse = _lu_solve(factors, pivots, ones, left=True, adjoint=False)
    info = ops.reshape(info, A.shape[:-2])
    if check_errors:
        raise_unless_zero(info, "linalg.inv_ex", single=A.rank == 2)
    return ops.reshape(inverse, A.shape), info


def _determinant(a: TensorValue, factored_used: bool) -> list[TensorValue]:
    """Determinant, sign, logarithm, factors and pivots."""
    turned = factored_used and _takes_transposed()
    shape = a.shape[:-2]
    factors, pivots, _ = _lu(stacked(transposed(a) if turned else a), a.shape[-2])
    if is_empty(a.shape):
        values = [full(n, a.dtype, shape, a.device) for n in (1, 1, 0)]
    else:
        types = [(a.dtype, [product(shape)])] * 3
        values = kernel("tmb_determinant", [factors, pivots], types)
        values = [ops.reshape(v, shape) for v in values]
    return [*values, ops.reshape(factors, a.shape), ops.reshape(pivots, a.shape[:-1])]


@map_to(aten._linalg_det.default, kernels="linalg.factorizations")
def linalg_det(A: TensorValue) -> tuple[TensorValue, TensorValue, TensorValue]:
    """_linalg_det(Tensor A) -> (Tensor result, Tensor LU, Tensor pivots)"""
    determinant, _, _, factors, pivots = _determinant(A, is_used(1) or is_used(2))
    return determinant, factors, pivots


@map_to(aten._linalg_slogdet.default, kernels="linalg.factorizations")
def linalg_slogdet(A: TensorValue) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue]:
    """_linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet, Tensor LU, Tensor pivots)"""
    _, sign, logarithm, factors, pivots = _determinant(A, is_used(2) or is_used(3))
    return sign, logarithm, factors, pivots
