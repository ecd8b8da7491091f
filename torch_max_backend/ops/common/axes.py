"""torch's rules for dimensions."""

from __future__ import annotations

from collections.abc import Sequence


def axis(dim: int, rank: int) -> int:
    """A non-negative dimension. A 0-d tensor counts as having one dimension, as in torch.

    Raises:
        IndexError: The dimension is out of range.
    """
    span = max(rank, 1)
    if not -span <= dim < span:
        raise IndexError(f"dimension {dim} is out of range for a tensor of rank {rank}")
    return dim % span


def axes(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Non-negative dimensions in ascending order; ``None`` and an empty list mean all of them."""
    if dims is None:
        return tuple(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    if len(dims) == 0:
        return tuple(range(rank))
    return tuple(sorted({axis(d, rank) for d in dims}))
