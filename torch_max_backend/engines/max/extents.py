"""Pieces of memory that may overlap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from max.driver import Buffer


class Extents:
    """Pieces of memory, none of which overlap: those that do become one.

    Args:
        given: First and last byte address + 1 of each.
    """

    def __init__(self, given: Sequence[tuple[int, int]]) -> None:
        self.empty = any(start == end for start, end in given)
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(given):
            if start == end:
                continue
            if self._ends and start < self._ends[-1]:
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._starts.append(start)
                self._ends.append(end)

    def overlap(self, extent: tuple[int, int]) -> bool:
        start, end = extent
        if start == end:
            return False
        k = bisect_right(self._starts, start)
        before = k > 0 and self._ends[k - 1] > start
        return before or (k < len(self._starts) and self._starts[k] < end)

    def add(self, extent: tuple[int, int]) -> None:
        """Add one that overlaps none."""
        start, end = extent
        if start == end:
            self.empty = True
            return
        k = bisect_right(self._starts, start)
        self._starts.insert(k, start)
        self._ends.insert(k, end)


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First and last byte address + 1 of a contiguous tensor."""
    start = tensor.data_ptr()
    return start, start + tensor.nbytes


def memory(buffer: Buffer) -> tuple[int, int]:
    """First and last byte address + 1 of a buffer."""
    start = buffer._data_ptr()
    return start, start + buffer.num_elements * buffer.dtype.size_in_bytes
