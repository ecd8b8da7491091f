"""Instructions for products of bfloat16, which the compiler does not use by itself."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

import torch

from torch_max_backend.process.processor import cpu_info

# `arch_prctl(ARCH_REQ_XCOMP_PERM, XTILE_DATA)`: a process has to ask for the tiles' registers.
_ARCH_PRCTL, _REQUEST, _TILES = 158, 0x1023, 18
# What the compiler calls the features that each kind needs.
_FEATURES = {
    "": (),
    "tiles": ("amx-tile", "amx-bf16"),
    "dots": ("avx512f", "avx512bw", "avx512vl", "avx512bf16"),
}


@cache
def flags() -> frozenset[str]:
    """The features that the system lists of the CPU, in its words; none where it does not."""
    return frozenset(cpu_info().get("flags", "").split())


_for_any: ContextVar[bool] = ContextVar("for any processor", default=False)


@contextmanager
def for_any_processor() -> Iterator[None]:
    """Within, graphs are analysed for processors without instructions of their own."""
    token = _for_any.set(True)
    try:
        yield
    finally:
        _for_any.reset(token)


def bfloat16_unit() -> str:
    """What multiplies bfloat16: "tiles" (AMX), "dots" (AVX512-BF16), or "" where numbers are
    widened to float32 for it."""
    return "" if _for_any.get() else _unit()


@cache
def _unit() -> str:
    """That of this CPU.

    Intel's dot products are half as fast as its float32 arithmetic, those of AMD's CPUs twice as
    fast.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return ""
    if flags() >= {"amx_tile", "amx_bf16"} and _granted():
        return "tiles"
    if "avx512_bf16" in flags() and cpu_info().get("vendor_id") == "AuthenticAMD":
        return "dots"
    return ""


def product_precision() -> str:
    """Of products of float32, in torch's words: "bf16" if they may be rounded to it and this CPU is
    faster so, else "ieee". ``torch.backends.mkldnn.matmul.fp32_precision`` allows it, which
    ``torch.set_float32_matmul_precision("medium")`` sets."""
    allowed = torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    return "bf16" if allowed and bfloat16_unit() else "ieee"


def features() -> tuple[str, ...]:
    """The features, in the compiler's words, that ``bfloat16_unit()`` needs, and the dot products
    that a CPU has besides: the compiler takes some CPUs for older ones."""
    units = [bfloat16_unit(), "dots" if "avx512_bf16" in flags() else ""]
    return tuple(dict.fromkeys(feature for unit in units for feature in _FEATURES[unit]))


def _granted() -> bool:
    """Whether the system lets this process, and so all its threads, use tiles."""
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILES) == 0
    except (OSError, AttributeError):
        return False
