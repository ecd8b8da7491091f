"""Resident memory that a process does not need: code that was only loaded, or has run for good.

Importing MAX's graph API and building a graph touch some 80 MB of its libraries. Planned graphs run
without them. Importing torch and Dynamo touches 170 MB of Triton's and CUDA's libraries, which a
process that computes on CPU never calls. Pages of code are as they are on disk, so they can be
given back: whoever runs that code again reads them from the page cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import PurePath

import torch

_DONTNEED = 4
_BUILDER = ("libmax.so", "libMGPRT.so")
_GPU = ("libtriton.", "libcublasLt.", "libnvrtc.", "libnvJitLink.", "libtorch_cuda.")


def release_builder() -> None:
    """Give the pages of MAX's graph builder back to the system. Does nothing off Linux, or where
    the system refuses."""
    _release(_is_builder)


@cache
def release_gpu_code() -> None:
    """Give the pages of torch's libraries for GPUs back, once, unless the process uses one."""
    if not torch.cuda.is_initialized():
        _release(_is_for_gpus)


def _release(chosen: Callable[[PurePath], bool]) -> None:
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError, ValueError):
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        with open("/proc/self/maps") as maps:
            found = list(unwritten(maps, chosen))
        for start, size in found:
            advise(start, size, _DONTNEED)


def unwritten(maps: Iterable[str], chosen: Callable[[PurePath], bool]) -> Iterator[tuple[int, int]]:
    """The parts of libraries that are as they are in their files.

    Args:
        maps: Lines of ``/proc/PID/maps``.
        chosen: Whether a library is one of those.

    Returns:
        Address and size in bytes of each: code, and the read-only data at a file's begin. What the
        loader makes read-only once it has written to it lies elsewhere in the file.
    """
    for line in maps:
        fields = line.split(maxsplit=5)
        if len(fields) < 6:
            continue
        span, access, offset, _, _, name = fields
        code = access == "r-xp" or (access == "r--p" and int(offset, 16) == 0)
        if code and chosen(PurePath(name.rstrip("\n"))):
            start, end = (int(address, 16) for address in span.split("-"))
            yield start, end - start


def _is_builder(file: PurePath) -> bool:
    if file.name in _BUILDER:
        return True
    return file.name.startswith(("_core.", "_mlir.")) and "max" in file.parts


def _is_for_gpus(file: PurePath) -> bool:
    return file.name.startswith(_GPU)
