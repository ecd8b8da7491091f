"""Strides of a graph's outputs. MAX returns contiguous memory; torch promised strides."""

from __future__ import annotations

import torch

from torch_max_backend.compat.symbols import Max
from torch_max_backend.graph.shapes import Symbols, hint, is_empty
from torch_max_backend.graph.signature_schema import Layout


def output_layout(value: torch.Tensor, symbols: Symbols) -> Layout:
    """The layout of an output from its fake tensor."""
    shape = [symbols.canonical(s) for s in value.shape]
    strides = [symbols.canonical(s) for s in value.stride()]
    hints = [hint(s) for s in value.stride()]
    rank = len(shape)
    if any(s == 0 for s in shape):
        # No memory to order, and views of it do not get the strides that torch gives.
        texts = tuple(symbols.text(s) for s in value.shape)
        return Layout(sizes=texts, strides=tuple(symbols.text(s) for s in value.stride()))
    narrowed = tuple(i for i in range(rank) if strides[i] == 0 and shape[i] != 1)
    sizes = [1 if i in narrowed else shape[i] for i in range(rank)]
    significant = [i for i in range(rank) if sizes[i] != 1]
    by_stride = sorted(significant, key=lambda i: (-hints[i], i))
    dense, step = True, 1
    for i in reversed(by_stride):
        dense = dense and strides[i] in (step, Max(1, step))
        step = step * sizes[i]
    texts = tuple(symbols.text(s) for s in value.shape)
    if not dense:
        return Layout(sizes=texts, strides=tuple(symbols.text(s) for s in value.stride()))
    order = _order(by_stride, significant, rank)
    return Layout(order=order, narrowed=narrowed, sizes=texts if narrowed else ())


def memory_order(value: torch.Tensor) -> tuple[int, ...] | None:
    """The dims of a tensor from outermost to innermost in memory, ``None`` for their natural order
    and for memory that is read more than once."""
    strides = [hint(s) for s in value.stride()]
    sizes = list(enumerate(value.shape))
    significant = [i for i, size in sizes if not (isinstance(size, int) and size == 1)]
    if any(strides[i] == 0 for i in significant) or is_empty(value):
        return None
    by_stride = sorted(significant, key=lambda i: (-strides[i], i))
    return _order(by_stride, significant, value.dim())


def _order(by_stride: list[int], significant: list[int], rank: int) -> tuple[int, ...] | None:
    """Size-1 dims keep their places: only the significant ones change order among themselves."""
    if by_stride == significant:
        return None
    moved = iter(by_stride)
    return tuple(next(moved) if i in significant else i for i in range(rank))
