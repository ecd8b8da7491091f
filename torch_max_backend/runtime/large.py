"""Memory of large results, used again once nobody holds them, and of a running graph's temporaries.

torch asks the C library for aligned memory, and glibc (before 2.38) finds no place in what such a
result left for another of its size: small blocks stay at its borders. So a loop that drops each
result grows by up to ten of them, and writes to pages that are new.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from dataclasses import dataclass

import torch

from torch_max_backend.process import fork_safety

# Bytes of a result that is large, and of the idle ones that are always kept.
LARGE, IDLE = 4 << 20, 64 << 20
# Results after which what has not been used since as many is dropped.
_SWEEP = 8192
# The key of memory for temporaries, which is taken by whoever needs as much or less.
_TEMPORARIES = -1
# The share of what was in use together and is not any more that is forgotten with each new storage.
_FADING = 16

_uses = torch._C._storage_Use_Count


def _made(size: int) -> torch.UntypedStorage:
    """Memory of so many bytes. Unlike one made as a storage, it can be resized."""
    return torch.empty(size, dtype=torch.uint8, device="cpu").untyped_storage()


@dataclass(eq=False)
class _Given:
    """A storage that was given away, its bytes then or ``_TEMPORARIES``, and when last, as a
    number of the calls of ``take``."""

    storage: torch.UntypedStorage
    size: int
    when: int = 0

    def holders(self) -> tuple[int, int]:
        """How many hold the storage, in C++ and in Python, this module included."""
        storage = self.storage
        return _uses(storage._cdata), sys.getrefcount(storage)


_NOBODY = _Given(_made(1), 1).holders()


class _Kept:
    """Storages that were given away, by their bytes, the one that is to be asked first at the end.

    Those that nobody holds are kept for the next result of their size: a step of training makes
    the same ones again and again, and to write to new pages takes longer than to compute what is
    written. There are never more than were in use together not long ago, and 64 MB.
    """

    def __init__(self) -> None:
        self._given: dict[int, deque[_Given]] = {}
        self._calls = 0
        # The most bytes in use together; what is above those in use now fades.
        self._most = 0
        self._lock = fork_safety.lock()

    def take(self, size: int) -> torch.UntypedStorage:
        """A storage of so many bytes that nobody else has."""
        with self._lock:
            self._count()
            alike = self._given.get(size, deque())
            for _ in range(len(alike)):
                given = alike.pop()
                if given.holders() == _NOBODY:
                    # Shared memory may be read by a process that was sent a result.
                    if given.storage.is_shared() or given.storage.nbytes() != size:
                        continue
                    given.when = self._calls
                    alike.appendleft(given)
                    return given.storage
                alike.appendleft(given)
            return self._new(size, size)

    def take_temporary(self, size: int) -> torch.UntypedStorage:
        """A storage of at least so many bytes that nobody else has. Graphs that run one after the
        other get the same."""
        with self._lock:
            self._count()
            idle = [g for g in self._given.get(_TEMPORARIES, ()) if g.holders() == _NOBODY]
            fitting = [g for g in idle if g.storage.nbytes() >= size]
            if fitting:
                given = min(fitting, key=lambda g: g.storage.nbytes())
                given.when = self._calls
                return given.storage
            # The new one serves those that need less as well.
            for given in idle:
                self._forget(given)
            return self._new(size, _TEMPORARIES)

    def _count(self) -> None:
        """Count a call; drop what is old after many."""
        self._calls += 1
        if self._calls % _SWEEP == 0:
            self._drop_old()

    def _new(self, size: int, key: int) -> torch.UntypedStorage:
        self._make_room(size)
        made = _Given(_made(size), key, self._calls)
        self._given.setdefault(key, deque()).appendleft(made)
        return made.storage

    def drop_idle(self) -> None:
        """Drop what nobody holds, unless another thread is at work here. The garbage collector
        may call this, in the midst of what this thread does here."""
        if self._lock.acquire(blocking=False):
            try:
                for given in self.idle():
                    self._forget(given)
            finally:
                self._lock.release()

    def idle(self) -> list[_Given]:
        """Those that nobody holds."""
        return [g for alike in self._given.values() for g in alike if g.holders() == _NOBODY]

    def _make_room(self, size: int) -> None:
        """Drop what is idle as far as there is too much once ``size`` more bytes are in use."""
        idle = sorted(self.idle(), key=lambda given: given.when)
        rest = sum(given.storage.nbytes() for given in idle)
        total = sum(g.storage.nbytes() for alike in self._given.values() for g in alike)
        used = total - rest + size
        self._most = max(used, self._most - (self._most - used) // _FADING)
        allowed = max(IDLE, self._most) - used
        for given in idle:
            if rest <= allowed:
                break
            rest -= given.storage.nbytes()
            self._forget(given)

    def _drop_old(self) -> None:
        for given in self.idle():
            if given.when < self._calls - _SWEEP:
                self._forget(given)

    def _forget(self, given: _Given) -> None:
        alike = self._given[given.size]
        alike.remove(given)
        if not alike:
            del self._given[given.size]


_kept = _Kept()


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on CPU whose values are to be written; its elements lie side by side."""
    storage = _kept.take(math.prod(shape) * dtype.itemsize)
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, 0, shape, strides)  # type: ignore[arg-type]


def temporary(size: int) -> torch.UntypedStorage:
    """At least so many bytes, for as long as the storage is held."""
    return _kept.take_temporary(size)


def drop_idle() -> None:
    """Give back what is kept for results to come and nobody holds."""
    _kept.drop_idle()


def is_large(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether a result is better had from ``empty``."""
    return math.prod(shape) * dtype.itemsize >= LARGE


__all__ = ["LARGE", "drop_idle", "empty", "is_large", "temporary"]
