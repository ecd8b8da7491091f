"""Tensors with others written over, added to or otherwise combined with some of their elements."""

from __future__ import annotations

from max.dtype import DType
from max.graph import TensorType, TensorValue, ops

from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.bank import nothing, number
from torch_max_backend.ops.common.positions import Size, is_zero, product
from torch_max_backend.ops.common.promotion import full, is_zeros, to_dtype

# On CPU, scatters are kernels of ``mojo_kernels/indexing/scatter.mojo``. Elsewhere they write to
# the flattened tensor: MAX's scatter along an axis wants an index no longer than the tensor, which
# torch does not.

_KERNELS = {
    "write": ops.scatter_nd,
    "sum": ops.scatter_nd_add,
    "prod": ops.scatter_nd_mul,
    "amax": ops.scatter_nd_max,
    "amin": ops.scatter_nd_min,
}

# On bool, as numbers 0 and 1.
LOGICAL = {"write": "write", "sum": "amax", "prod": "amin", "amax": "amax", "amin": "amin"}


def combine(self: TensorValue, positions: TensorValue, src: TensorValue, how: str) -> TensorValue:
    """``self`` with ``src`` (of the positions' shape) written over, added to, ... its elements at
    checked positions of its flattened form."""
    if any(is_zero(s) for s in positions.shape):
        return self
    count, size = product(positions.shape), product(self.shape)
    if self.device.is_cpu():
        flat = ops.reshape(self, [1, size, 1])
        places, values = ops.reshape(positions, [count]), ops.reshape(src, [1, count, 1])
        return ops.reshape(combine_rows(flat, places, values, how), self.shape)
    if self.dtype == DType.bool and how != "write":
        wide = [ops.cast(v, DType.int8) for v in (self, src)]
        return to_dtype(combine(wide[0], positions, wide[1], LOGICAL[how]), DType.bool)
    flat = ops.reshape(self, [size])
    places = ops.reshape(positions, [count, 1])
    written = ops.reshape(_KERNELS[how](flat, ops.reshape(src, [count]), places), self.shape)
    if how not in ("amax", "amin") or not self.dtype.is_float():
        return written
    # MAX's maximum and minimum drop NaN.
    marks = ops.cast(ops.is_nan(src), DType.int8)
    unmarked = full(0, DType.int8, self.shape, self.device)
    marked = ops.logical_or(
        ops.is_nan(self), to_dtype(combine(unmarked, positions, marks, "amax"), DType.bool)
    )
    return ops.where(marked, full(float("nan"), self.dtype, self.shape, self.device), written)


def combine_rows(
    self: TensorValue | None,
    index: TensorValue,
    src: TensorValue,
    how: str,
    *,
    include_self: bool = True,
    wrap: bool = False,
    skip: TensorValue | None = None,
    shape: list[Size] | None = None,
) -> TensorValue:
    """``self[outer, index[j], inner]`` combined with ``src[outer, j, inner]`` on CPU, for j in
    order. An index out of range raises when the model runs.

    Args:
        include_self: Otherwise only what is written counts where something is.
        wrap: Negative indices count from the end.
        skip: A number that is left out among the indices.
        shape: The shape of the result that starts from zeros, without ``self``.
    """
    if src.dtype == DType.bool:
        combined = combine_rows(
            None if self is None else ops.cast(self, DType.uint8),
            index,
            ops.cast(src, DType.uint8),
            LOGICAL[how],
            include_self=include_self,
            wrap=wrap,
            skip=skip,
            shape=shape,
        )
        return to_dtype(combined, src.dtype)
    base = nothing(src.dtype, 3) if self is None else self
    kind = TensorType(src.dtype, base.shape if shape is None else shape, src.device)
    left_out = number(-1) if skip is None else skip
    settings = [number(wrap), left_out, number(include_self)]
    values = [base, to_dtype(index, DType.int64), src, *settings]
    return ops.custom("tmb_scatter_rows", src.device, values, [kind], {"kind": how})[0].tensor


def combine_along(
    self: TensorValue,
    dim: int,
    index: TensorValue,
    source: TensorValue,
    how: str,
    include_self: bool,
) -> TensorValue:
    """``self[.., index[j], ..]`` combined with ``source[.., j, ..]`` on CPU."""
    dim = axis(dim, self.rank)
    n = self.shape[dim] if self.rank else 1
    outer, inner = product(self.shape[:dim]), product(self.shape[dim + 1 :])
    count = product(index.shape)
    rows = ops.reshape(self, [outer, n, inner])
    places, values = ops.reshape(index, [count]), ops.reshape(source, [outer, count, inner])
    zeros: list[Size] | None = [outer, n, inner] if is_zeros(self) and include_self else None
    found = combine_rows(
        rows if zeros is None else None,
        to_dtype(places, DType.int64),
        values,
        how,
        include_self=include_self,
        shape=zeros,
    )
    return ops.reshape(found, self.shape)
