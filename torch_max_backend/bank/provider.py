"""Who provides the routines of the bank: the interface, and the choice."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import torch

from torch_max_backend.errors import ExecutionError
from torch_max_backend.log import get_logger

log = get_logger("bank")

# The order and types of the arguments with which `mojo_kernels/gemm.mojo` calls a routine.
ABI = 1


@dataclass(frozen=True)
class Provider:
    """A library with Fortran BLAS matrix products.

    Attributes:
        name: Which library.
        version: Its version, for the cache key.
        routines: Addresses: ``float32`` and ``float64`` of ``sgemm`` and ``dgemm``, and
            ``set_threads`` of a function that bounds the library's threads for the calling thread
            and returns the old bound, or 0 if the library has none and never starts any.
        keep: Whatever must live as long as the addresses are used.
    """

    name: str
    version: str
    routines: Mapping[str, int]
    keep: object = field(default=None, repr=False, compare=False)

    @property
    def identity(self) -> str:
        """Names the provider in a cache key."""
        return f"{self.name} {self.version} abi {ABI}: {' '.join(sorted(self.routines))}"


# In the order of preference; each returns None where its library is not to be had.
_candidates: list[Callable[[], Provider | None]] = []


def candidate(find: Callable[[], Provider | None]) -> Callable[[], Provider | None]:
    """Register a way to find a provider, after those registered before it."""
    _candidates.append(find)
    return find


@cache
def provider() -> Provider | None:
    """The first provider that is there and multiplies right; ``None`` if there is none."""
    from torch_max_backend.bank import torch_blas  # noqa: F401  registers itself

    for find in _candidates:
        found = find()
        if found is None:
            continue
        if all(multiplies(found, dtype) for dtype in ("float32", "float64")):
            return found
        log.warning("%s computes a wrong matrix product and is not used.", found.name)
    return None


_CTYPES = {"float32": ctypes.c_float, "float64": ctypes.c_double}


def multiplies(found: Provider, dtype: str) -> bool:
    """Whether the provider's routine computes small products right, called as the kernels call
    it: numbers of 64 bits by reference, each operand plain and transposed."""
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


def routine(name: str) -> int:
    """The address of a routine that a compiled graph asks for.

    Raises:
        ExecutionError: No provider has it: the artifact was made elsewhere.
    """
    found = provider()
    if found is None or name not in found.routines:
        raise ExecutionError(
            f"A compiled graph needs the matrix product routine {name!r}, which no library of this "
            "machine provides.",
            "Clear the artifact cache and compile again.",
        )
    return found.routines[name]
