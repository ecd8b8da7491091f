"""torch's own compiler: an operator of its, and its entries, which take a second to import."""

from __future__ import annotations

from typing import Any

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._inductor.inductor_prims import fma


def compile_fx(*arguments: Any, **settings: Any) -> Any:
    """A Dynamo graph compiled by inductor."""
    with names_of("torch"):
        from torch._inductor.compile_fx import compile_fx

    return compile_fx(*arguments, **settings)


def aoti_compile_and_package(*arguments: Any, **settings: Any) -> str:
    """An exported program compiled by inductor into a file; returns its path."""
    with names_of("torch"):
        from torch._inductor import aoti_compile_and_package

    return aoti_compile_and_package(*arguments, **settings)


__all__ = ["aoti_compile_and_package", "compile_fx", "fma"]
