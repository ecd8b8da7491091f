"""PyTorch models on Modular MAX: ``torch.compile(model, backend=max_backend)``."""

from typing import TYPE_CHECKING, Any

from torch_max_backend.backend import max_backend
from torch_max_backend.convert.registry import Refusal, map_to
from torch_max_backend.errors import (
    CacheError,
    CompilationError,
    ConversionError,
    ExecutionError,
    IndexOutOfBoundsError,
    InputError,
    LinearAlgebraError,
    MaxBackendError,
    OptionError,
    PackageError,
    RegistrationError,
    UnsupportedDeviceError,
    UnsupportedDtypeError,
    UnsupportedError,
    UnsupportedOperatorError,
)
from torch_max_backend.explanation import Explanation, explain
from torch_max_backend.mojo_op import mojo_op

if TYPE_CHECKING:
    from torch_max_backend.package.exporting import export
    from torch_max_backend.package.loading import load

__all__ = [
    "CacheError",
    "CompilationError",
    "ConversionError",
    "ExecutionError",
    "Explanation",
    "IndexOutOfBoundsError",
    "InputError",
    "LinearAlgebraError",
    "MaxBackendError",
    "OptionError",
    "PackageError",
    "Refusal",
    "RegistrationError",
    "UnsupportedDeviceError",
    "UnsupportedDtypeError",
    "UnsupportedError",
    "UnsupportedOperatorError",
    "explain",
    "export",
    "load",
    "map_to",
    "max_backend",
    "mojo_op",
]


def __getattr__(name: str) -> Any:
    # Most processes need neither.
    if name == "export":
        from torch_max_backend.package.exporting import export

        return export
    if name == "load":
        from torch_max_backend.package.loading import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
