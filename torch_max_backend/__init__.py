"""PyTorch models on Modular MAX. Each name is imported when it is first used: whoever loads a
package needs nothing of what compiles, which takes longer to import than the package to load."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch_max_backend.process.garbage import collected_later, count_as_old

if TYPE_CHECKING:
    from torch_max_backend.ahead_of_time.exporting import export
    from torch_max_backend.ahead_of_time.loading import load
    from torch_max_backend.backend import max_backend
    from torch_max_backend.errors import (
        CacheError,
        CompilationError,
        ConversionError,
        ExecutionError,
        ForkError,
        IndexOutOfBoundsError,
        InputError,
        LinearAlgebraError,
        MaxBackendError,
        OptionError,
        PackageError,
        PatchError,
        RegistrationError,
        SettingError,
        UnsupportedDeviceError,
        UnsupportedDtypeError,
        UnsupportedError,
        UnsupportedOperatorError,
    )
    from torch_max_backend.explanation import Explanation, check, explain
    from torch_max_backend.mojo_operator import mojo_op
    from torch_max_backend.patching import compiled, packed, patch, unpatch
    from torch_max_backend.registry.lowerings import Refusal, map_to

__all__ = [
    "CacheError",
    "CompilationError",
    "ConversionError",
    "ExecutionError",
    "Explanation",
    "ForkError",
    "IndexOutOfBoundsError",
    "InputError",
    "LinearAlgebraError",
    "MaxBackendError",
    "OptionError",
    "PackageError",
    "PatchError",
    "Refusal",
    "RegistrationError",
    "SettingError",
    "UnsupportedDeviceError",
    "UnsupportedDtypeError",
    "UnsupportedError",
    "UnsupportedOperatorError",
    "check",
    "compiled",
    "explain",
    "export",
    "load",
    "map_to",
    "max_backend",
    "mojo_op",
    "packed",
    "patch",
    "unpatch",
]

# Errors are in `errors`.
_PLACES = {
    "Explanation": "explanation",
    "Refusal": "registry.lowerings",
    "check": "explanation",
    "compiled": "patching",
    "explain": "explanation",
    "export": "ahead_of_time.exporting",
    "load": "ahead_of_time.loading",
    "map_to": "registry.lowerings",
    "max_backend": "backend",
    "mojo_op": "mojo_operator",
    "packed": "patching",
    "patch": "patching",
    "unpatch": "patching",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_imported(f"{__name__}.{_PLACES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def _imported(name: str) -> ModuleType:
    """A module. What importing makes is no garbage: to look for some would take a third of the
    time."""
    with collected_later():
        found = import_module(name)
        count_as_old()
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
