"""Gradients of what rearranges images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor


def replication_pad_backward(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    """``aten::replication_pad{1,2,3}d_backward``: each element gathers what its copies got.

    Args:
        self: ``[..., *spatial]``.
        padding: Before and after, the last dimension first.
    """
    result = grad_output
    for dim, size, before, _ in _padded_dims(self, padding):
        places = torch.arange(result.shape[dim], device=self.device) - before
        result = _gathered(result, dim, size, places.clamp(0, size - 1))
    return result


def reflection_pad_backward(grad_output: Tensor, self: Tensor, padding: Sequence[int]) -> Tensor:
    """``aten::reflection_pad{1,2,3}d_backward``: each element gathers what its mirror images got.

    torch's own decomposition picks single elements of the whole gradient, nine times of images.

    Args:
        self: ``[..., *spatial]``.
        padding: Before and after, the last dimension first.
    """
    result = grad_output
    for dim, size, before, after in _padded_dims(self, padding):
        if all(isinstance(n, int) for n in (size, before, after)):
            result = _unmirrored(result, dim, size, before, after)
            continue
        places = (torch.arange(result.shape[dim], device=self.device) - before).abs()
        places = (size - 1) - ((size - 1) - places).abs()
        result = _gathered(result, dim, size, places)
    return result


def _padded_dims(self: Tensor, padding: Sequence[int]) -> Iterator[tuple[int, int, int, int]]:
    """Each padded dim, the last one first, with its size and what is added before and after."""
    for i in range(len(padding) // 2):
        dim = self.dim() - 1 - i
        yield dim, self.shape[dim], padding[2 * i], padding[2 * i + 1]


def _gathered(grad: Tensor, dim: int, size: int, places: Tensor) -> Tensor:
    """Along one dim of ``size`` elements what belongs to each, by the places where it belongs."""
    shape = [*grad.shape[:dim], size, *grad.shape[dim + 1 :]]
    return grad.new_zeros(shape).index_add(dim, places, grad)


def _unmirrored(grad: Tensor, dim: int, size: int, before: int, after: int) -> Tensor:
    """Along one dim, part by part: each is a sum of slices, those of mirror images turned round."""
    if before < 0 or after < 0:  # what was cut got nothing
        cut = [0] * (2 * (grad.dim() - 1 - dim)) + [max(-before, 0), max(-after, 0)]
        grad = torch.ops.aten.constant_pad_nd(grad, cut)
        before, after = max(before, 0), max(after, 0)
    if before == 0 and after == 0:
        return grad
    last = size - 1

    def mirrored(start: int, stop: int) -> Tensor:
        part = grad.narrow(dim, start, stop - start)
        return part.flip(dim) if stop - start > 1 else part

    edges = sorted({0, 1, 1 + before, last - after, last, size})
    parts = []
    for start, stop in pairwise(edges):
        part = grad.narrow(dim, before + start, stop - start)
        if start >= 1 and stop <= 1 + before:
            part = part + mirrored(before - stop + 1, before - start + 1)
        if start >= last - after and stop <= last:
            end = before + 2 * last
            part = part + mirrored(end - stop + 1, end - start + 1)
        parts.append(part)
    return torch.cat(parts, dim)
