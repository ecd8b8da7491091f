"""Factorizations and what solves with them."""

from __future__ import annotations

from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from torch_max_backend.ops.common.matrices import kernel


def factorizations(x: TensorValue) -> list[TensorValue]:
    a = ops.reshape(x, [2, 3 * 8, 10])
    square = a[:, :10, :]
    info = (DType.int32, [2])
    lu = kernel(
        "tmb_lu", [a], [(x.dtype, a.shape), (DType.int32, [2, 10]), info], {"pivoting": True}
    )
    same, factors, one = (x.dtype, square.shape), lu[0][:, :10, :], (x.dtype, [2])
    results = [*kernel("tmb_cholesky", [square], [same, info], {"upper": True}), *lu]
    results += kernel("tmb_permutation", [lu[1]], [(DType.int64, [2, 24])])
    given = [factors, lu[1], square]
    for flag in (True, False):
        results += kernel("tmb_lu_solve", given, [same], {"transposed": flag})
        settings = {"upper": flag, "transposed": flag, "unit": flag}
        results += kernel("tmb_solve_triangular", [factors, square], [same], settings)
    results += kernel("tmb_determinant", [factors, lu[1]], [one, one, one])
    results += kernel("tmb_zero_on_diagonal", [square], [info])
    return results


def orthogonal(x: TensorValue) -> list[TensorValue]:
    a = ops.reshape(x, [2, 3 * 8, 10])
    same, line = (x.dtype, a.shape), (x.dtype, [2, 10])
    factors = kernel("tmb_qr", [a], [same, line, line])
    results = [*factors, *kernel("tmb_orthogonal", factors[:2], [same, line])]
    return results + kernel("tmb_reflect", [*factors[:2], a], [same, line], {"transposed": True})


def eigen(x: TensorValue) -> list[TensorValue]:
    a = ops.reshape(x, [2, 3 * 8, 10])[:, :10, :]
    same, info = (x.dtype, a.shape), (DType.int32, [2])
    types = [(x.dtype, [2, 10]), same, info, same, (x.dtype, [2, 4, 10])]
    settings = {"upper": True, "vectors": True, "single": False, "text": ""}
    return kernel("tmb_eigh", [a], types, settings)


def singular(x: TensorValue) -> list[TensorValue]:
    a = ops.reshape(x, [2, 3 * 8, 10])
    same, info = (x.dtype, a.shape), (DType.int32, [2])
    u, v, lines = (x.dtype, [2, 24, 24]), (x.dtype, [2, 10, 10]), (x.dtype, [2, 4, 10])
    settings = {"vectors": True, "single": False, "text": "", "infinite": ""}
    types = [(x.dtype, [2, 10]), u, v, info, same, same, lines]
    return kernel("tmb_svd", [a], types, settings)


def indefinite(x: TensorValue) -> list[TensorValue]:
    a = ops.reshape(x, [2, 3 * 8, 10])[:, :10, :]
    same, order, info = (x.dtype, a.shape), (DType.int32, [2, 10]), (DType.int32, [2])
    settings = {"checked": True, "single": False, "text": ""}
    ldl = kernel("tmb_ldl", [a], [same, order, info], settings)
    return [*ldl, *kernel("tmb_ldl_solve", [*ldl[:2], a], [same])]


def exponential(x: TensorValue) -> list[TensorValue]:
    a = ops.reshape(x, [2, 3 * 8, 10])[:, :10, :]
    return kernel("tmb_matrix_exponential", [a], [(x.dtype, a.shape), (x.dtype, [2, 50, 10])])


def operands(x: TensorValue) -> list[TensorValue]:
    results = []
    for right in (False, True):
        for inner, shape in ((True, [48, 3, 10]), (False, [3, 48, 10])):
            settings = {"right": right, "inner": inner}
            out = TensorType(x.dtype, shape, x.device)
            a = ops.reshape(x, [48, 10])
            results += ops.custom("tmb_tf32_operand", x.device, [a], [out], settings)
    return [r.tensor for r in results]


LIBRARIES = (
    "gemm.tf32",
    "linalg.factorizations",
    "linalg.orthogonal",
    "linalg.eigen",
    "linalg.singular",
    "linalg.indefinite",
    "linalg.matrix_exponential",
)
BUILDERS = (operands, factorizations, orthogonal, eigen, singular, indefinite, exponential)
