"""Memory of large results, used again once nobody holds them.

torch asks the C library for aligned memory, and glibc (before 2.38) finds no place in what such a
result left for another of its size: small blocks stay at its borders. So a loop that drops each
result grows by up to ten of them, and writes to pages that are new.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable

import torch

from torch_max_backend import forks

# Bytes of a result that is large, and of the idle ones that are kept.
LARGE, IDLE = 4 << 20, 64 << 20

_uses = torch._C._storage_Use_Count


def _made(size: int) -> torch.UntypedStorage:
    """Memory of so many bytes. Unlike one made as a storage, it can be resized."""
    return torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()


def _holders(storages: Iterable[torch.UntypedStorage]) -> list[tuple[int, int]]:
    """Of each storage how many hold it, in C++ and in Python, this module included."""
    return [(_uses(storage._cdata), sys.getrefcount(storage)) for storage in storages]


# Those of a storage that is only in a list.
_NOBODY = _holders([_made(1)])[0]


class _Kept:
    """Storages that were given away, the last one at the end."""

    def __init__(self) -> None:
        self._storages: list[torch.UntypedStorage] = []
        self._lock = forks.lock()

    def take(self, size: int) -> torch.UntypedStorage:
        """A storage of so many bytes that nobody else has."""
        with self._lock:
            idle = [i for i, held in enumerate(_holders(self._storages)) if held == _NOBODY]
            rest = 0
            for i in reversed(idle):
                # Shared memory may be read by a process that was sent a result.
                if self._storages[i].is_shared():
                    del self._storages[i]
                elif self._storages[i].nbytes() == size:
                    found = self._storages.pop(i)
                    self._storages.append(found)
                    return found
                elif (rest := rest + self._storages[i].nbytes()) > IDLE - size:
                    del self._storages[i]
            made = _made(size)
            if size <= IDLE:
                self._storages.append(made)
            return made


_kept = _Kept()


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on CPU whose values are to be written; its elements lie side by side."""
    storage = _kept.take(math.prod(shape) * dtype.itemsize)
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape, strides)  # type: ignore[arg-type]


def is_large(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a result is better had from ``empty``."""
    return math.prod(shape) * dtype.itemsize >= LARGE


__all__ = ["empty", "is_large"]
