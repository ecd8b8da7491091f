"""Matrix products of groups of rows, each group with a matrix of its own: mixtures of experts."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from torch_max_backend.ops.common.bank import number, routine, unpermuted
from torch_max_backend.ops.common.promotion import full, to_dtype
from torch_max_backend.ops.common.reduce import is_empty
from torch_max_backend.registry.lowerings import Refusal, map_to, registry

aten = torch.ops.aten


def grouped_product(a: TensorValue, b: TensorValue, ends: TensorValue) -> TensorValue:
    """The product of each row with the matrix of its group.

    Args:
        a: ``[rows, K]``, on CPU, sorted by group.
        b: ``[groups, K, N]``.
        ends: ``[groups]``, integers: the first row after each group. Rows of no group become 0.
    """
    shape = [a.shape[0], b.shape[2]]
    if is_empty([*a.shape, *b.shape]):
        return full(0, a.dtype, shape, a.device)
    plain = unpermuted(b, [0, 2, 1])
    (found,) = ops.custom(
        "tmb_grouped_matmul",
        a.device,
        [
            a,
            b if plain is None else plain,
            to_dtype(ends, DType.int64),
            *(routine(a.dtype, a.device) or [number(0)] * 2),
            number(plain is not None),
        ],
        [TensorType(a.dtype, shape, a.device)],
    )
    return found.tensor


def _rows_in_groups(
    self: torch.Tensor,
    mat2: torch.Tensor,
    offs: torch.Tensor | None,
    bias: torch.Tensor | None,
    out_dtype: torch.dtype | None,
) -> Refusal | None:
    if (self.dim(), mat2.dim()) != (2, 3) or offs is None:
        return Refusal("only rows are taken in groups, of a 2-d tensor, not columns or batches")
    if bias is not None or out_dtype not in (None, self.dtype):
        return Refusal("a bias and a dtype of the result are not taken")
    return _on_cpu(self)


def _on_cpu(input: torch.Tensor) -> Refusal | None:
    return None if input.device.type == "cpu" else Refusal("groups are multiplied on CPU only")


@map_to(
    aten._grouped_mm.default,
    supports=_rows_in_groups,
    native16=True,
    kernels="gemm.grouped",
    bank=True,
)
def grouped_mm(
    self: TensorValue,
    mat2: TensorValue,
    offs: TensorValue,
    bias: None = None,
    out_dtype: DType | None = None,
) -> TensorValue:
    """_grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None,
    ScalarType? out_dtype=None) -> Tensor"""
    return grouped_product(self, mat2, offs)


def grouped_mm_fallback(input: TensorValue, weight: TensorValue, offs: TensorValue) -> TensorValue:
    """grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor"""
    return grouped_product(input, weight, offs)


def map_transformers() -> None:
    """Lower what transformers calls for ``aten._grouped_mm`` under ``torch.compile``, if it is
    imported: it defines that operator then."""
    op = getattr(torch.ops.transformers, "grouped_mm_fallback", None)
    if op is not None and op.default not in registry:
        map_to(op.default, supports=_on_cpu, native16=True, kernels="gemm.grouped", bank=True)(
            grouped_mm_fallback
        )
