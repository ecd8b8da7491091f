"""Batches of matrices as kernels take them, and LAPACK's failures in torch's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from max.dtype import DType
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.ops.common.positions import iota, product, spread
from torch_max_backend.ops.common.promotion import constant, full, to_dtype
from torch_max_backend.ops.common.raising import raise_by

Size: TypeAlias = int | Dim

# What torch appends to an operator's name, by a part of that name; "#" stands for LAPACK's info.
_MEANINGS = {
    "inv": "The diagonal element # is zero, the inversion could not be completed because the "
    "input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": "The factorization could not be completed because the input is not "
    "positive-definite (the leading minor of order # is not positive-definite).",
    "eig": "The algorithm failed to converge because the input matrix is ill-conditioned or has "
    "too many repeated eigenvalues (error code: #).",
    "svd": "The algorithm failed to converge because the input matrix is ill-conditioned or has "
    "too many repeated singular values (error code: #).",
    "lstsq": "The least squares problem could not be solved because the input matrix does not "
    "have full rank (error code: #).",
    "lu_factor": "U[#,#] is zero and using it on lu_solve would result in a division by zero. If "
    "you still want to perform the factorization, consider calling linalg.lu(A, pivot) or "
    "linalg.lu_factor_ex(A, pivot)",
}
NOT_FINITE = (
    "The algorithm failed to converge because the input matrix contained non-finite values."
)


def failure(operator: str, meaning: str | None = None) -> str:
    """The text of torch's error for an operator; "@" stands for the place in a batch."""
    if meaning is None:
        found = (text for part, text in _MEANINGS.items() if part in operator)
        meaning = next(found, "LAPACK's info is #.")
    return f"{operator}@: {meaning}"


def raise_unless_zero(info: TensorValue, operator: str, *, single: bool) -> None:
    """Let the model raise when it runs if a factorization's info is not 0."""
    flat = ops.reshape(info, [product(info.shape)])
    raise_by("tmb_check_info", flat, text=failure(operator), single=single)


def stacked(value: TensorValue, kept: int = 2) -> TensorValue:
    """``[batch, ...]``: all dims but the last ``kept`` as one."""
    leading = value.shape[: value.rank - kept]
    return ops.reshape(value, [product(leading), *value.shape[value.rank - kept :]])


def over_batch(value: TensorValue, batch: Sequence[Size], kept: int = 2) -> TensorValue:
    """A value whose leading dims are broadcast to ``batch``, stacked."""
    return stacked(spread(value, [*batch, *value.shape[value.rank - kept :]]), kept)


def transposed(value: TensorValue) -> TensorValue:
    """Matrices with rows and columns exchanged."""
    return ops.transpose(value, -1, -2)


def unit(rows: Size, columns: Size, like: TensorValue) -> TensorValue:
    """``[rows, columns]`` with ones on the diagonal, of the dtype and device of ``like``."""
    down = ops.unsqueeze(iota(rows, like.device), 1)
    along = ops.unsqueeze(iota(columns, like.device), 0)
    return to_dtype(ops.equal(down, along), like.dtype)


def nothing(like: TensorValue) -> TensorValue:
    """The empty tensor that torch returns for a result that was not asked for."""
    return full(0, like.dtype, [0], like.device)


def zero(like: TensorValue) -> TensorValue:
    """A 0-d zero of the dtype and on the device of ``like``."""
    return constant(0, like.dtype, like.device)


def kernel(
    name: str,
    inputs: Sequence[TensorValue],
    types: Sequence[tuple[DType, Sequence[Size]]],
    parameters: Mapping[str, bool | int | str | DType] | None = None,
) -> list[TensorValue]:
    """The results of a kernel on the device of its inputs, by dtype and shape."""
    device = inputs[0].device
    made = [TensorType(dtype, list(shape), device) for dtype, shape in types]
    settings = None if parameters is None else dict(parameters)
    results = ops.custom(name, device, list(inputs), made, settings)
    return [r.tensor for r in results]
