"""PyTorch models on Modular MAX: ``torch.compile(model, backend=max_backend)``."""

from torch_max_backend.backend import max_backend
from torch_max_backend.convert.registry import Refusal, map_to
from torch_max_backend.errors import (
    CacheError,
    CompilationError,
    ConversionError,
    ExecutionError,
    ForkError,
    IndexOutOfBoundsError,
    LinearAlgebraError,
    MaxBackendError,
    OptionError,
    RegistrationError,
    UnsupportedDeviceError,
    UnsupportedDtypeError,
    UnsupportedError,
    UnsupportedOperatorError,
)
from torch_max_backend.explanation import Explanation, explain
from torch_max_backend.mojo_op import mojo_op

__all__ = [
    "CacheError",
    "CompilationError",
    "ConversionError",
    "ExecutionError",
    "Explanation",
    "ForkError",
    "IndexOutOfBoundsError",
    "LinearAlgebraError",
    "MaxBackendError",
    "OptionError",
    "Refusal",
    "RegistrationError",
    "UnsupportedDeviceError",
    "UnsupportedDtypeError",
    "UnsupportedError",
    "UnsupportedOperatorError",
    "explain",
    "map_to",
    "max_backend",
    "mojo_op",
]
