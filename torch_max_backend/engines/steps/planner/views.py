"""Views: what reshape, transpose, slice and broadcast make of memory without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.sizes import (
    Size,
    Sizes,
    dense_strides,
    product,
    quotient,
)


@dataclass(frozen=True, eq=False)
class View:
    """A tensor on the memory of a value that has memory of its own.

    Attributes:
        root: That value; its own layout is dense until it is given a place.
        shape: Sizes.
        strides: Distances of neighbours along each dim, in elements; 0 where broadcast.
        offset: Position of the first element.
    """

    root: Value
    shape: Sizes
    strides: Sizes
    offset: Size = 0

    @classmethod
    def whole(cls, root: Value) -> View:
        return cls(root, root.shape, dense_strides(root.shape))

    @property
    def dtype(self) -> str:
        return self.root.dtype

    def is_dense(self) -> bool:
        """Whether its elements lie one behind the other, in order."""
        return same_strides(self.shape, self.strides, dense_strides(self.shape))

    def is_whole(self) -> bool:
        """Whether it is all of the memory of its root, in order."""
        return (
            self.offset == 0 and self.is_dense() and product(self.shape) == product(self.root.shape)
        )

    def repeats(self) -> bool:
        """Whether it has elements of its root more than once, as what is broadcast."""
        return any(s == 0 and n != 1 for n, s in zip(self.shape, self.strides, strict=True))

    def reshape(self, shape: Sizes) -> View | None:
        """The view in another shape, or ``None`` where that takes a copy."""
        if self.is_dense() and product(self.shape) == product(shape):
            strides: Sizes | None = dense_strides(shape)
        else:
            strides = reshaped_strides(self.shape, self.strides, shape)
        return None if strides is None else View(self.root, shape, strides, self.offset)

    def transpose(self, order: Sequence[int]) -> View:
        return View(
            self.root,
            tuple(self.shape[i] for i in order),
            tuple(self.strides[i] for i in order),
            self.offset,
        )

    def slice(self, starts: Sizes, shape: Sizes, steps: Sequence[int]) -> View:
        offset: Any = self.offset
        for start, stride in zip(starts, self.strides, strict=True):
            offset = offset + start * stride
        strides = tuple(s * k for s, k in zip(self.strides, steps, strict=True))
        return View(self.root, shape, strides, offset)

    def broadcast(self, shape: Sizes) -> View:
        """The view in a shape to which its own broadcasts."""
        before = len(shape) - len(self.shape)
        strides: list[Size] = [0] * before
        for size, stride, wanted in zip(self.shape, self.strides, shape[before:], strict=True):
            strides.append(0 if size == 1 and wanted != 1 else stride)
        return View(self.root, shape, tuple(strides), self.offset)


def same_strides(shape: Sizes, strides: Sizes, other: Sizes) -> bool:
    """Whether two strides are the same where they count: along dims of more than one element."""
    return all(a == b for n, a, b in zip(shape, strides, other, strict=True) if n != 1)


def reshaped_strides(shape: Sizes, strides: Sizes, to: Sizes) -> Sizes | None:
    """The strides with which memory has another shape of as many elements, or ``None``."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    if any(n == 0 for n in (*shape, *to)):
        return dense_strides(to)
    wanted = [i for i, n in enumerate(to) if n != 1]
    result: list[Size] = [0] * len(to)
    at = 0
    k = 0
    while k < len(wanted) and at < len(old):
        # A group of old dims and one of new dims that have as many elements.
        have, stride = old[at]
        first = at
        at += 1
        group = [wanted[k]]
        need: Any = to[wanted[k]]
        k += 1
        while have != need:
            if _divides(have, need) and at < len(old):
                size, inner = old[at]
                if old[at - 1][1] != size * inner:
                    return None
                have, stride = have * size, inner
                at += 1
            elif _divides(need, have) and k < len(wanted):
                group.append(wanted[k])
                need = need * to[wanted[k]]
                k += 1
            else:
                return None
        del first
        step: Any = stride
        for i in reversed(group):
            result[i] = step
            step = step * to[i]
    if at < len(old) or k < len(wanted):
        return None
    # Dims of one element take the stride that a contiguous tensor has there.
    step = 1
    for i in reversed(range(len(to))):
        if to[i] == 1:
            result[i] = step
        else:
            step = to[i] * result[i]
    return tuple(result)


def _divides(small: Size, large: Size) -> bool:
    """Whether ``large`` is known to be a multiple of ``small``."""
    if isinstance(small, int) and isinstance(large, int):
        return small < large
    return quotient(large, small) is not None


def kept(view: View, keep: list[int]) -> View:
    """A view without all dims but those to keep; the others have one element."""
    return View(
        view.root,
        tuple(view.shape[i] for i in keep),
        tuple(view.strides[i] for i in keep),
        view.offset,
    )
