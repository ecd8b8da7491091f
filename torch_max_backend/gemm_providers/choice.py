"""Which provider of matrix products a machine has, and which is the fastest."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache

import torch

from torch_max_backend.compat.tracing import disable_current_modes
from torch_max_backend.errors import ExecutionError
from torch_max_backend.gemm_providers.provider import Provider
from torch_max_backend.gemm_providers.torch_blas import torch_mkl
from torch_max_backend.log import get_logger
from torch_max_backend.process.processor import cpu_info

log = get_logger("bank")

# By name; each returns None where its library is unavailable.
CANDIDATES: Mapping[str, Callable[[], Provider | None]] = {
    "mojo": lambda: Provider("mojo"),
    "mkl": torch_mkl,
}


def names() -> list[str]:
    """The names that ``provider`` takes."""
    return list(CANDIDATES)


@cache
def provider(name: str | None = None) -> Provider | None:
    """The provider ``name``, or the fastest one that this machine has.

    MKL leaves half of the speed of other makers' processors unused: on AMD's (AVX-512) ours takes
    0.5 to 0.8 of its time, for one row as for a thousand.

    Returns:
        ``None`` if the library is missing or computes a wrong product.
    """
    if name is None:
        order = ("mkl", "mojo") if made_by_intel() else ("mojo",)
        return next(found for n in order if (found := provider(n)) is not None)
    if name not in names():
        return None
    found = CANDIDATES[name]()
    if found is None or all(multiplies(found, dtype) for dtype in _CTYPES):
        return found
    log.warning("%s computes a wrong matrix product and is not used.", found.name)
    return None


def made_by_intel() -> bool:
    """Whether the processor is one of Intel's."""
    return cpu_info().get("vendor_id") == "GenuineIntel"


_CTYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double}


def multiplies(found: Provider, dtype: str) -> bool:
    """Whether the provider's routine computes small products right, called as the kernels call
    it: numbers of 64 bits by reference, each operand plain and transposed."""
    if dtype not in found.routines:
        return True  # ours, which the tests check
    # AOTAutograd, which may be what asks first, makes fake tensors.
    with disable_current_modes(), torch.device("cpu"):
        return _multiplies(found, dtype)


def _multiplies(found: Provider, dtype: str) -> bool:
    kind = getattr(torch, dtype)
    for m, n, k in ((3, 5, 4), (1, 7, 2)):
        a = torch.arange(m * k, dtype=kind).reshape(m, k) - 3
        b = torch.arange(k * n, dtype=kind).reshape(k, n) * 2 - 5
        want = (a.unsqueeze(-1) * b).sum(1)
        for left, right in ((a, b), (a.t().contiguous(), b), (a, b.t().contiguous())):
            got = torch.full((m, n), float("nan"), dtype=kind)
            _call(found, dtype, left, right, got, [m, n, k])
            if not torch.equal(got, want):
                return False
    return True


def _call(
    found: Provider,
    dtype: str,
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    sizes: Sequence[int],
) -> None:
    m, n, k = sizes
    scalar = _CTYPES[dtype]
    pointer = ctypes.c_void_p

    def flag(transposed: bool) -> ctypes.c_char:
        return ctypes.c_char(b"t" if transposed else b"n")

    numbers = [ctypes.c_int64(v) for v in (n, m, k, b.shape[1], a.shape[1], n)]
    one, zero = scalar(1), scalar(0)
    values = [
        flag(b.shape != (k, n)), flag(a.shape != (m, k)), *numbers[:3], one,
        b, numbers[3], a, numbers[4], zero, c, numbers[5],
    ]  # fmt: skip
    arguments = [
        pointer(v.data_ptr()) if isinstance(v, torch.Tensor) else ctypes.byref(v) for v in values
    ]
    ctypes.CFUNCTYPE(None, *[pointer] * len(values))(found.routines[dtype])(*arguments)


def routine(source: str) -> int:
    """The address of a routine that a compiled graph asks for, as ``provider.routine``.

    Raises:
        ExecutionError: The provider is not here: the artifact was made elsewhere.
    """
    name, _, routine = source.partition(".")
    found = provider(name)
    if found is None or routine not in found.routines:
        raise ExecutionError(
            f"A compiled graph needs the matrix product routine {source!r}, which no library of "
            "this machine provides.",
            "Clear the artifact cache and compile again.",
        )
    return found.routines[routine]
