"""Overlapping frames added up (the way back from ``unfold``, and ``istft``), by the kernel of
``mojo_kernels/frames.mojo``."""

from __future__ import annotations

import torch
from max.graph import Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected
from torch_max_backend.convert.registry import Refusal, map_to
from torch_max_backend.ops.common.axes import axis
from torch_max_backend.ops.common.positions import is_zero, product, scalar
from torch_max_backend.ops.common.promotion import full

aten = torch.ops.aten


def _supports(grad_in: torch.Tensor) -> Refusal | None:
    if grad_in.dtype == torch.bool:
        return Refusal("truth values have no sum")
    return None


@map_to(aten.unfold_backward.default, supports=_supports, kernels="frames")
def unfold_backward(
    grad_in: TensorValue,
    input_sizes: list[int | Dim],
    dim: int,
    size: int | Dim,
    step: int | Dim,
) -> TensorValue:
    """unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, SymInt size, SymInt step)
    -> Tensor"""
    shape = expected().shape
    device, dtype = grad_in.device, grad_in.dtype
    if any(is_zero(s) for s in [*shape, *grad_in.shape]):
        return full(0, dtype, shape, device)
    if not shape:
        return ops.reshape(grad_in, [])
    at = axis(dim, len(shape))
    others = [i for i in range(len(shape)) if i != at]
    last = grad_in.rank - 1
    frames = ops.permute(grad_in, [*others, at, last])
    count, length = grad_in.shape[at], grad_in.shape[last]
    outer = [Dim(shape[i]) for i in others]
    lines = ops.reshape(frames, [product(outer), count, length])
    kind = TensorType(dtype, [product(outer), Dim(shape[at])], device)
    sums = ops.custom("tmb_overlap_add", device, [lines, scalar(step)], [kind])[0].tensor
    moved = ops.reshape(sums, [*outer, Dim(shape[at])])
    order = list(range(len(others)))
    order.insert(at, len(others))
    return ops.permute(moved, order)
