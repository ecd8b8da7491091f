"""Huge pages for memory that graphs read again and again.

The processor looks up where each page of 4 KB lies, in a virtual machine twice over, and fetches
nothing ahead beyond a page's end. Linux (since 6.1) puts memory into pages of 2 MB when it is asked
to (``MADV_COLLAPSE``); addresses and values stay. Another system refuses, and all stays as it is.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
import weakref
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path

import torch

from torch_max_backend.environment import huge_pages
from torch_max_backend.process.background_threads import BackgroundThread

# Bytes of a huge page.
PAGE = 2 << 20
# After each page, so many times as long as it took nothing is done: who wants memory of the system
# waits for a page, and what the graphs lose meanwhile they are to gain soon.
_REST = 9
_COLLAPSE = 25
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
# What the system says where it has none left or forbids to ask: it is not asked again.
_FINAL = (errno.ENOSYS, errno.EPERM, errno.ENOMEM, errno.EBUSY)

# At the lowest priority, it would be put aside while others wait for its lock.
_thread = BackgroundThread("pages")
# The pages of each tensor that was asked for already.
_asked: set[range] = set()
_MOST_ASKED = 1 << 16
# Whether this process asks for no more: it has forked, or the system has none left.
_over = False


def _end() -> None:
    global _over
    _over = True


# Parent and child share their pages, and huge pages would be copies of them.
os.register_at_fork(before=_end)


def move_later(tensors: Iterable[torch.Tensor]) -> None:
    """Have the memory of large tensors put into huge pages, in the background.

    Args:
        tensors: On CPU, such as parameters. Each is asked for once.
    """
    if _over or not (huge_pages() and _offered()):
        return
    for tensor in tensors:
        pages = _pages(tensor)
        if pages and pages not in _asked:
            if len(_asked) >= _MOST_ASKED:
                _asked.clear()
            _asked.add(pages)
            _thread.later(partial(_move, weakref.ref(tensor)))


def _move(reference: weakref.ref[torch.Tensor]) -> None:
    """Put the memory of a tensor into huge pages, if it still exists."""
    tensor = reference()
    if tensor is None:
        return
    for address in _pages(tensor):
        if _over:
            return
        start = time.perf_counter()
        # What else it refuses is this page alone: memory of a file, or that was never written.
        if _madvise()(address, PAGE, _COLLAPSE) and ctypes.get_errno() in _FINAL:
            _end()
        time.sleep(_REST * (time.perf_counter() - start))


def _pages(tensor: torch.Tensor) -> range:
    """The addresses of the huge pages that a tensor fills, none where it is not dense."""
    if not tensor.is_contiguous():
        return range(0)
    address, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
    return range(-(-address // PAGE) * PAGE, (address + size) // PAGE * PAGE, PAGE)


@cache
def _offered() -> bool:
    """Whether the system has huge pages for who asks."""
    try:
        return "[never]" not in _SETTING.read_text()
    except OSError:
        return False


@cache
def _madvise() -> Callable[[int, int, int], int]:
    function = ctypes.CDLL(None, use_errno=True).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function


__all__ = ["move_later"]
