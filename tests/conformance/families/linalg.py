"""Factorizations, linear systems, eigenvalues and what is made of them."""

import torch

from tests.conformance.entry import Entry

_REAL = (torch.float32, torch.float64)

ENTRIES = [
    Entry(name, dtypes=_REAL)
    for name in (
        "cholesky_inverse",
        "cholesky_solve",
        "linalg.cholesky",
        "linalg.cond",
        "linalg.det",
        "linalg.eigh",
        "linalg.eigvalsh",
        "linalg.householder_product",
        "linalg.inv",
        "linalg.inv_ex",
        "linalg.polar",
        "linalg.matrix_sqrth",
        "matrix_exp",
        "linalg.ldl_factor",
        "linalg.ldl_solve",
        "linalg.lu",
        "linalg.lu_factor",
        "linalg.lu_solve",
        "linalg.matrix_rank",
        "linalg.pinv",
        "linalg.pinv.hermitian",
        "linalg.qr",
        "linalg.slogdet",
        "linalg.solve",
        "linalg.solve_ex",
        "linalg.solve_triangular",
        "linalg.svd",
        "linalg.svdvals",
        "linalg.tensorsolve",
        "logdet",
        "lu_unpack",
        "ormqr",
        "triangular_solve",
    )
]
