"""Memory of large results, used again once nobody holds them, and of a running graph's temporaries.

torch asks the C library for aligned memory, and glibc (before 2.38) finds no place in what such a
result left for another of its size: small blocks stay at its borders. So a loop that drops each
result grows by up to ten of them, and writes to pages that are new.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from sys import getrefcount

import torch

from torch_max_backend.compat.tensors import storage_uses, tensor_in
from torch_max_backend.process import fork_safety

# Bytes of a result that is large, and of the idle ones that are always kept.
LARGE, IDLE = 4 << 20, 64 << 20
# After so many results, memory that none of them used is freed.
_SWEEP = 8192
# The key of memory for temporaries, which is taken by whoever needs as much or less.
_TEMPORARIES = -1
# The share of what was in use together and is not any more that is forgotten with each new storage.
_FADING = 16


@dataclass(eq=False, slots=True)
class _Given:
    """Memory that was given away.

    Attributes:
        base: A tensor of all of it, which is never given away.
        storage: Its storage. Nobody else has it while its holders are ``_NOBODY``.
        handle: What torch calls the storage.
        address: Where it was made; it is elsewhere once it has been resized or shared.
        size: Its bytes.
        key: Under which it is kept: its bytes or ``_TEMPORARIES``.
        when: When it was last given away, as a number of calls.
    """

    base: torch.Tensor
    storage: torch.UntypedStorage
    handle: int
    address: int
    size: int
    key: int
    when: int = 0

    @classmethod
    def of(cls, size: int, key: int) -> _Given:
        # What is made for inference only, autograd refuses later. Unlike memory that is made as a
        # storage, a tensor's can be resized.
        with torch.inference_mode(False):
            base = torch.empty(size, dtype=torch.uint8, device="cpu")
        storage = base.untyped_storage()
        return cls(base, storage, storage._cdata, base.data_ptr(), size, key)

    def holders(self) -> tuple[int, int]:
        """How many hold the storage, in C++ and in Python, this module included."""
        return storage_uses(self.handle), getrefcount(self.storage)

    def is_idle(self) -> bool:
        """Whether nobody else holds it, and it is what it was: shared memory may be read by a
        process that was sent a result."""
        return self.holders() == _NOBODY and self.base.data_ptr() == self.address

    def part(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
    ) -> torch.Tensor:
        """A tensor in it."""
        if self.base.dtype is not dtype:
            with torch.inference_mode(False):
                count = self.size // dtype.itemsize
                self.base = torch.empty(0, dtype=dtype, device="cpu").set_(
                    self.storage,
                    0,
                    (count,),
                    (1,),
                )
        return tensor_in(self.base, shape, strides, 0)


_NOBODY = _Given.of(1, 1).holders()


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
        self.lock = fork_safety.lock()

    def take(self, size: int) -> _Given:
        """So many bytes that nobody else has. They are in use once a tensor in them has been made,
        which is to be done before anybody else asks: ``lock`` is held for both."""
        self._count()
        alike = self._given.get(size, deque())
        for _ in range(len(alike)):
            given = alike.pop()
            if given.is_idle():
                given.when = self._calls
                # The next one finds it in the caches, if it is idle again.
                alike.append(given)
                return given
            # What has been resized or shared is let go.
            if given.holders() != _NOBODY:
                alike.appendleft(given)
        return self._new(size, size)

    def take_temporary(self, size: int) -> _Given:
        """At least so many bytes that nobody else has, as from ``take``. Graphs that run one after
        the other get the same."""
        self._count()
        idle = [g for g in self._given.get(_TEMPORARIES, ()) if g.is_idle()]
        fitting = [g for g in idle if g.size >= size]
        if fitting:
            given = min(fitting, key=lambda g: g.size)
            given.when = self._calls
            return given
        # The new one serves those that need less as well.
        for given in idle:
            self._forget(given)
        return self._new(size, _TEMPORARIES)

    def _count(self) -> None:
        """Count a call; drop what is old after many."""
        self._calls += 1
        if self._calls % _SWEEP == 0:
            for given in self.idle():
                if given.when < self._calls - _SWEEP:
                    self._forget(given)

    def _new(self, size: int, key: int) -> _Given:
        self._make_room(size)
        made = _Given.of(size, key)
        made.when = self._calls
        self._given.setdefault(key, deque()).append(made)
        return made

    def drop_idle(self) -> None:
        """Drop what nobody holds, unless another thread is at work here. The garbage collector
        may call this, in the midst of what this thread does here."""
        if self.lock.acquire(blocking=False):
            try:
                for given in self.idle():
                    self._forget(given)
            finally:
                self.lock.release()

    def idle(self) -> list[_Given]:
        """Those that nobody holds."""
        return [g for alike in self._given.values() for g in alike if g.holders() == _NOBODY]

    def _make_room(self, size: int) -> None:
        """Drop what is idle as far as there is too much once ``size`` more bytes are in use."""
        idle = sorted(self.idle(), key=lambda given: given.when)
        rest = sum(given.size for given in idle)
        total = sum(g.size for alike in self._given.values() for g in alike)
        used = total - rest + size
        self._most = max(used, self._most - (self._most - used) // _FADING)
        allowed = max(IDLE, self._most) - used
        for given in idle:
            if rest <= allowed:
                break
            rest -= given.size
            self._forget(given)

    def _forget(self, given: _Given) -> None:
        alike = self._given[given.key]
        alike.remove(given)
        if not alike:
            del self._given[given.key]


_kept = _Kept()


def empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A tensor on CPU whose values are to be written; its elements lie side by side."""
    with _kept.lock:
        return _kept.take(math.prod(shape) * dtype.itemsize).part(shape, strides, dtype)


def temporary(size: int) -> torch.Tensor:
    """At least so many bytes, for as long as the tensor is held."""
    with _kept.lock:
        given = _kept.take_temporary(size)
        return given.part((given.size,), (1,), torch.uint8)


def drop_idle() -> None:
    """Give back what is kept for results to come and nobody holds."""
    _kept.drop_idle()


def is_large(shape: tuple[int, ...], dtype: torch.dtype) -> bool:
    """Whether ``empty`` makes a result faster."""
    return math.prod(shape) * dtype.itemsize >= LARGE


__all__ = ["LARGE", "drop_idle", "empty", "is_large", "temporary"]
