"""Where temporary tensors lie: those that are never needed at once share memory."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence

# Of the vectors of any processor; and what kernels may read past an end.
ALIGNMENT = 64


def offsets(sizes: Sequence[int], lives: Sequence[tuple[int, int]]) -> tuple[list[int], int]:
    """The offset of each piece of memory, and how much all take together, in bytes.

    The largest are placed first, each at the lowest place that is free while it lives.

    Args:
        sizes: Bytes of each.
        lives: The first and the last step that use each.
    """
    order = sorted(range(len(sizes)), key=lambda i: -sizes[i])
    placed: list[tuple[int, int, int, int]] = []
    result = [0] * len(sizes)
    total = 0
    for i in order:
        first, last = lives[i]
        need = -(-sizes[i] // ALIGNMENT) * ALIGNMENT + ALIGNMENT
        at = 0
        for start, end, begins, ends in placed:
            if begins <= last and first <= ends:
                if start - at >= need:
                    break
                at = max(at, end)
        result[i] = at
        total = max(total, at + need)
        insort(placed, (at, at + need, first, last))
    return result, total
