"""Orthogonal factorizations, eigenvalues, singular values and what has a kernel of its own, by
``mojo_kernels/{orthogonal,eigen,singular,indefinite}.mojo``."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.ops.common.matrices import (
    NOT_FINITE,
    failure,
    kernel,
    nothing,
    over_batch,
    stacked,
    transposed,
    unit,
)
from torch_max_backend.ops.common.positions import Size, is_zero, static, window
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.ops.triangle import triu
from torch_max_backend.registry.lowerings import map_to

aten = torch.ops.aten


def _factored(a: TensorValue, small: Size) -> tuple[TensorValue, TensorValue]:
    """LAPACK's ``geqrf`` of ``[batch, m, n]``: factors and scales."""
    batch, _, n = a.shape
    types = [(a.dtype, a.shape), (a.dtype, [batch, small]), (a.dtype, [batch, n])]
    factors, tau, _ = kernel("tmb_qr", [a], types)
    return factors, tau


def _orthogonal(factors: TensorValue, tau: TensorValue, columns: Size) -> TensorValue:
    """The first columns of a product of reflections, ``[batch, m, columns]``."""
    batch, m, _ = factors.shape
    types = [(factors.dtype, [batch, m, columns]), (factors.dtype, [batch, columns])]
    return kernel("tmb_orthogonal", [factors, tau], types)[0]


@map_to(aten.geqrf.default, kernels="linalg.orthogonal")
def geqrf(self: TensorValue) -> tuple[TensorValue, TensorValue]:
    """geqrf(Tensor self) -> (Tensor a, Tensor tau)"""
    shape = expected(1).shape
    if is_empty(self.shape):
        return self, full(0, self.dtype, shape, self.device)
    factors, tau = _factored(stacked(self), shape[-1])
    return ops.reshape(factors, self.shape), ops.reshape(tau, shape)


@map_to(aten.linalg_qr.default, kernels="linalg.orthogonal")
def linalg_qr(A: TensorValue, mode: str) -> tuple[TensorValue, TensorValue]:
    """linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)"""
    q_shape, r_shape = expected(0).shape, expected(1).shape
    if is_empty(A.shape):
        q = nothing(A)
        if mode != "r":
            q = ops.broadcast_to(unit(q_shape[-2], q_shape[-1], A), list(q_shape))
        return q, full(0, A.dtype, r_shape, A.device)
    small = _smaller(A, r_shape[-2] if mode != "complete" else None)
    factors, tau = _factored(stacked(A), small)
    q = nothing(A)
    if mode != "r":
        q = ops.reshape(_orthogonal(factors, tau, q_shape[-1]), q_shape)
    r = triu(window(factors, 1, 0, r_shape[-2]))
    return q, ops.reshape(r, r_shape)


def _smaller(a: TensorValue, promised: Size | None) -> Size:
    """The smaller size of matrices, promised by torch's metadata where it is symbolic."""
    rows, columns = static(a.shape[-2]), static(a.shape[-1])
    if rows is not None and columns is not None:
        return min(rows, columns)
    # The kernel takes as many reflections as there are; the rest of the scales stay unused.
    return a.shape[-1] if promised is None else promised


@map_to(aten.linalg_householder_product.default, kernels="linalg.orthogonal")
def linalg_householder_product(input: TensorValue, tau: TensorValue) -> TensorValue:
    """linalg_householder_product(Tensor input, Tensor tau) -> Tensor"""
    if is_empty(input.shape):
        return full(0, input.dtype, input.shape, input.device)
    if is_zero(tau.shape[-1]):
        return ops.broadcast_to(unit(input.shape[-2], input.shape[-1], input), input.shape)
    q = _orthogonal(stacked(input), stacked(tau, 1), input.shape[-1])
    return ops.reshape(q, input.shape)


@map_to(aten.ormqr.default, kernels="linalg.orthogonal")
def ormqr(
    self: TensorValue, input2: TensorValue, input3: TensorValue, left: bool, transpose: bool
) -> TensorValue:
    """ormqr(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False)
    -> Tensor"""
    if is_empty(input3.shape) or is_zero(input2.shape[-1]):
        return input3
    c = stacked(input3)
    if not left:
        # c op(Q) is the transpose of op(Q)^T c^T.
        c, transpose = transposed(c), not transpose
    types = [(c.dtype, c.shape), (c.dtype, [c.shape[0], c.shape[2]])]
    operands = [stacked(self), stacked(input2, 1), c]
    result, _ = kernel("tmb_reflect", operands, types, {"transposed": transpose})
    return ops.reshape(result if left else transposed(result), input3.shape)


@map_to(aten._linalg_eigh.default, kernels="linalg.eigen")
def linalg_eigh(A: TensorValue, UPLO: str, compute_v: bool) -> tuple[TensorValue, TensorValue]:
    """_linalg_eigh(Tensor A, str UPLO='L', bool compute_v=True)
    -> (Tensor eigenvalues, Tensor eigenvectors)"""
    if is_empty(A.shape):
        values = full(0, A.dtype, A.shape[:-1], A.device)
        return values, full(0, A.dtype, A.shape if compute_v else [0], A.device)
    a = stacked(A)
    batch, n, _ = a.shape
    types = [
        (A.dtype, [batch, n]),
        (A.dtype, a.shape if compute_v else [1, 1, 1]),
        (DType.int32, [batch]),
        (A.dtype, a.shape),
        (A.dtype, [batch, 4, n]),
    ]
    settings = {
        "upper": UPLO.upper() == "U",
        "vectors": compute_v,
        "single": A.rank == 2,
        "text": failure("linalg.eigh"),
    }
    values, rows, *_ = kernel("tmb_eigh", [a], types, settings)
    values = ops.reshape(values, A.shape[:-1])
    return values, ops.reshape(transposed(rows), A.shape) if compute_v else nothing(A)


@map_to(aten._linalg_svd.default, kernels="linalg.singular")
def linalg_svd(
    A: TensorValue, full_matrices: bool, compute_uv: bool, *, driver: str | None
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """_linalg_svd(Tensor A, bool full_matrices=False, bool compute_uv=True, *,
    str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)"""
    u_shape, s_shape, v_shape = (expected(i).shape for i in range(3))
    if is_empty(A.shape):
        values = full(0, A.dtype, s_shape, A.device)
        if not compute_uv:
            return nothing(A), values, nothing(A)
        u, v = (
            ops.broadcast_to(unit(s[-2], s[-1], A), list(s))
            if not is_empty(s)
            else full(0, A.dtype, s, A.device)
            for s in (u_shape, v_shape)
        )
        return u, values, v
    a = stacked(A)
    batch, m, n = a.shape
    small = s_shape[-1]
    types = [
        (A.dtype, [batch, small]),
        (A.dtype, [batch, u_shape[-1], m] if compute_uv else [1, 1, 1]),
        (A.dtype, [batch, v_shape[-2], n] if compute_uv else [1, 1, 1]),
        (DType.int32, [batch]),
        (A.dtype, a.shape),
        (A.dtype, a.shape),
        (A.dtype, [batch, 4, small]),
    ]
    settings = {
        "vectors": compute_uv,
        "single": A.rank == 2,
        "text": failure("linalg.svd"),
        "infinite": failure("linalg.svd", NOT_FINITE),
    }
    values, left, right, *_ = kernel("tmb_svd", [a], types, settings)
    values = ops.reshape(values, s_shape)
    if not compute_uv:
        return nothing(A), values, nothing(A)
    return ops.reshape(transposed(left), u_shape), values, ops.reshape(right, v_shape)


@map_to(aten.linalg_ldl_factor_ex.default, kernels="linalg.indefinite")
def linalg_ldl_factor_ex(
    self: TensorValue, *, hermitian: bool, check_errors: bool
) -> tuple[TensorValue, TensorValue, TensorValue]:
    """linalg_ldl_factor_ex(Tensor self, *, bool hermitian=False, bool check_errors=False)
    -> (Tensor LD, Tensor pivots, Tensor info)"""
    shapes = [self.shape, self.shape[:-1], self.shape[:-2]]
    dtypes = [self.dtype, DType.int32, DType.int32]
    if is_empty(self.shape):
        ld, pivots, info = (
            full(0, dtype, shape, self.device) for dtype, shape in zip(dtypes, shapes, strict=True)
        )
        return ld, pivots, info
    a = stacked(self)
    types = list(zip(dtypes, [a.shape, a.shape[:2], a.shape[:1]], strict=True))
    settings = {
        "checked": check_errors,
        "single": self.rank == 2,
        "text": failure("torch.linalg.ldl_factor_ex"),
    }
    results = kernel("tmb_ldl", [a], types, settings)
    ld, pivots, info = (ops.reshape(v, s) for v, s in zip(results, shapes, strict=True))
    return ld, pivots, info


@map_to(aten.linalg_ldl_solve.default, kernels="linalg.indefinite")
def linalg_ldl_solve(
    LD: TensorValue, pivots: TensorValue, B: TensorValue, *, hermitian: bool
) -> TensorValue:
    """linalg_ldl_solve(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False) -> Tensor"""
    shape = expected().shape
    if is_empty(shape):
        return full(0, B.dtype, shape, B.device)
    batch = shape[:-2]
    if pivots.dtype != DType.int32:
        pivots = ops.cast(pivots, DType.int32)
    operands = [over_batch(LD, batch), over_batch(pivots, batch, 1), over_batch(B, batch)]
    (x,) = kernel("tmb_ldl_solve", operands, [(B.dtype, operands[2].shape)])
    return ops.reshape(x, shape)


# Matrices of scratch a matrix, as in ``mojo_kernels/linalg/matrix_exponential.mojo``.
_EXPONENTIAL_SCRATCH = 5


@map_to(aten.linalg_matrix_exp.default, kernels="linalg.matrix_exponential")
def linalg_matrix_exp(self: TensorValue) -> TensorValue:
    """linalg_matrix_exp(Tensor self) -> Tensor"""
    if is_empty(self.shape):
        return full(0, self.dtype, self.shape, self.device)
    flat = stacked(self)
    batch, n, _ = flat.shape
    scratch = (self.dtype, [batch, n * _EXPONENTIAL_SCRATCH, n])
    types = [(self.dtype, flat.shape), scratch]
    result, _ = kernel("tmb_matrix_exponential", [flat], types)
    return ops.reshape(result, self.shape)
