"""Who computes matrix products on CPU for the kernels that call a library: the interface."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# The order and types of the arguments with which `mojo_kernels/gemm/blas.mojo` calls a routine.
ABI = 1


@dataclass(frozen=True)
class Provider:
    """Who computes matrix products on CPU, called by the threads of the engine.

    Attributes:
        name: ``mojo``: ``mojo_kernels/gemm/panels.mojo``, compiled into each graph; otherwise a
            library with Fortran BLAS routines.
        version: The library's version, for the cache key.
        routines: Addresses: ``float32`` and ``float64`` of ``sgemm`` and ``dgemm``, and
            ``set_threads`` of a function that bounds the library's threads for the calling thread
            and returns the old bound, or 0 if the library has none and never starts any. Products
            without a routine are ``mojo``'s.
        keep: Whatever must live as long as the addresses are used.
    """

    name: str
    version: str = ""
    routines: Mapping[str, int] = field(default_factory=dict)
    keep: object = field(default=None, repr=False, compare=False)

    @property
    def identity(self) -> str:
        """Names the provider in a cache key."""
        return f"{self.name} {self.version} abi {ABI}: {' '.join(sorted(self.routines))}"
