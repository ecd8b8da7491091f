"""torch's own BLAS: the MKL inside the x86 wheels' CPU library."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import torch

from torch_max_backend.gemm_providers.provider import Provider


def torch_mkl() -> Provider | None:
    """MKL, where torch's CPU library exports it. Without its switch for threads it would start
    threads of its own beside the engine's, so it is not taken then."""
    if sys.byteorder != "little" or not torch.backends.mkl.is_available():
        return None
    path = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    try:
        library = ctypes.CDLL(str(path))
        functions = {
            "float32": library.sgemm_,
            "float64": library.dgemm_,
            "set_threads": library.MKL_Set_Num_Threads_Local,
        }
    except (OSError, AttributeError):
        return None
    routines = {n: ctypes.cast(f, ctypes.c_void_p).value or 0 for n, f in functions.items()}
    return Provider("mkl", torch.__version__, routines, library)
