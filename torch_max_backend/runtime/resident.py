"""Resident memory that a process no longer needs: the code of MAX's graph builder.

Importing MAX's graph API and building a graph touch some 80 MB of its libraries. Planned graphs run
without them. Pages of code are as they are on disk, so they can be given back: whoever runs that
code again reads them from the page cache.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Iterable, Iterator
from pathlib import PurePath

_DONTNEED = 4
_BUILDER = ("libmax.so", "libMGPRT.so")


def release_builder() -> None:
    """Give the pages of MAX's graph builder back to the system. Does nothing off Linux, or where
    the system refuses."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError, ValueError):
        advise = ctypes.CDLL(None).madvise
        advise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        with open("/proc/self/maps") as maps:
            found = list(unwritten(maps))
        for start, size in found:
            advise(start, size, _DONTNEED)


def unwritten(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """The parts of MAX's graph builder that are as they are in its files.

    Args:
        maps: Lines of ``/proc/PID/maps``.

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
        if code and _is_builder(PurePath(name.rstrip("\n"))):
            start, end = (int(address, 16) for address in span.split("-"))
            yield start, end - start


def _is_builder(file: PurePath) -> bool:
    if file.name in _BUILDER:
        return True
    return file.name.startswith(("_core.", "_mlir.")) and "max" in file.parts
