"""The OpenMP runtime that torch runs its operators on, for the kernels of step libraries."""

from __future__ import annotations

import ctypes
import os
import re
from functools import cache
from pathlib import Path

_RUNTIME = re.compile(r"lib(?:gomp|iomp5|omp)\b[^/]*\.so[^/]*")
# What team.mojo calls.
_CALLED = ("GOMP_parallel", "omp_get_max_threads", "omp_in_parallel")


@cache
def team_mode() -> str:
    """ "gomp" where the process has an OpenMP runtime that kernels can share, else "serial".

    The runtime's symbols are made visible to the libraries that are loaded afterwards.
    """
    import torch  # loads its runtime

    near = str(Path(torch.__file__).parent)
    # Torch's own first: a process may hold several.
    for path in sorted(_runtimes(), key=lambda path: not path.startswith(near)):
        try:
            found = ctypes.CDLL(path, mode=os.RTLD_GLOBAL | os.RTLD_NOLOAD | os.RTLD_NOW)
        except OSError:
            continue
        if all(hasattr(found, name) for name in _CALLED):
            return "gomp"
    return "serial"


def _runtimes() -> list[str]:
    """The files of the OpenMP runtimes that the process has loaded."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    paths = {line.split(maxsplit=5)[-1] for line in lines if "/" in line}
    return sorted(p for p in paths if _RUNTIME.fullmatch(Path(p).name))
