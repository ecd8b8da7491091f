"""What the planner knows of kernels by name."""

from __future__ import annotations

from torch_max_backend.engines.steps.planner.sizes import dense_strides
from torch_max_backend.engines.steps.planner.views import View, same_strides

# Operands, by their number among the inputs, whose rows may lie at any distance: how many of the
# last dims have to be dense.
_STRIDED = {
    "tmb_matmul": {0: 1, 1: 1},
    "tmb_scaled_matmul": {0: 1, 1: 1},
    "tmb_integer_matmul": {0: 1, 1: 1},
    "tmb_int4_matmul": {0: 1},
    "tmb_attention": {0: 1, 1: 1, 2: 1, 3: 1},
    "tmb_normalize": {0: 1},
    "tmb_softmax": {0: 1},
    "tmb_lookup": {0: 1},
    "tmb_reduce": {0: 0},
}
# Kernels with an operand that only tells a size, and its number: no memory is filled for it.
SIZE_OPERANDS = {
    "tmb_bincount": 2,
    "tmb_consecutive": 2,
    "tmb_repeated": 1,
    "tmb_take_true": 2,
    "tmb_true_at": 1,
}


def takes_strides(symbol: str, index: int, view: View) -> bool:
    """Whether a kernel takes an operand as it lies, though it is not dense."""
    if SIZE_OPERANDS.get(symbol) == index:
        return True
    dense = _STRIDED.get(symbol, {}).get(index)
    if dense is None or not view.shape:
        return False
    if dense == 0:
        return True
    tail = view.shape[-dense:]
    return same_strides(tail, view.strides[-dense:], dense_strides(tail))
