"""The exceptions of this package.

Every one says what is wrong (operator, argument shapes and dtypes), where it is in the user's
source, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

import torch
from torch.fx import Node


class _WithoutDynamo(RuntimeError):
    """In the place of Dynamo's ``ShortenTraceback`` until the backend, and with it Dynamo, is
    imported: that takes longer than to load a package."""

    def __init__(self, *args: object, first_useful_frame: FrameType | None) -> None:
        super().__init__(*args)
        self.first_useful_frame = first_useful_frame


class MaxBackendError(_WithoutDynamo):
    """Base class. Derives from Dynamo's ``ShortenTraceback``, once there is a backend, so that
    ``torch.compile`` raises it as it is instead of wrapping it in ``BackendCompilerFailed``.

    ``refused`` holds the nodes of a graph that it is about, each with what is wrong with it.
    """

    refused: tuple[tuple[Node, str], ...] = ()

    def __init__(self, *parts: str | None) -> None:
        super().__init__("\n".join(p for p in parts if p), first_useful_frame=None)


def join_dynamo() -> None:
    """Make ``MaxBackendError`` one of Dynamo's exceptions; imports Dynamo."""
    from torch_max_backend.compat.dynamo import ShortenTraceback

    MaxBackendError.__bases__ = (ShortenTraceback,)


class OptionError(MaxBackendError, ValueError):
    """An option or mode given to ``torch.compile`` is unknown or has a bad value."""


class SettingError(OptionError):
    """An environment variable of this package is set to what it cannot be."""


class RegistrationError(MaxBackendError):
    """A lowering was registered wrongly: twice, for a mutating overload, with another signature."""


class PatchError(MaxBackendError):
    """A model cannot be patched as was asked."""


class UnsupportedError(MaxBackendError):
    """Something of the graph cannot be expressed in MAX."""


class UnsupportedOperatorError(UnsupportedError, NotImplementedError):
    """Operators without a lowering, or refused by their lowering's ``supports`` check.

    ``operators`` holds their names in order of appearance, without repetition.
    """

    def __init__(self, *parts: str | None, operators: Sequence[str] = ()) -> None:
        super().__init__(*parts)
        self.operators = tuple(operators)


class UnsupportedDtypeError(UnsupportedError, TypeError):
    """A tensor's dtype or layout (complex, sparse, quantized, ...) has no MAX counterpart."""


class UnsupportedDeviceError(UnsupportedError):
    """A tensor lives on a device that MAX does not drive here."""


class StepsError(UnsupportedError):
    """The steps engine has no step for something of the graph."""


class ConversionError(MaxBackendError):
    """A lowering failed, or built a value that is not what torch's metadata promises."""


class CompilationError(MaxBackendError):
    """A graph could not be compiled."""


class LibraryError(CompilationError):
    """A library of kernels for the steps engine cannot be built or loaded."""


class ExecutionError(MaxBackendError):
    """A compiled model refused its inputs or failed while it ran.

    ``wrote`` tells whether it may have written to its arguments before that.
    """

    wrote = False


class ForkError(ExecutionError):
    """A compiled model was called, or a graph compiled, in a process that was forked from one that
    uses MAX."""


class IndexOutOfBoundsError(ExecutionError, IndexError):
    """An index in a tensor's data lies outside the tensor it indexes, as eager's ``IndexError``."""


class LinearAlgebraError(ExecutionError, torch.linalg.LinAlgError):
    """A matrix has no such factorization, as eager's ``torch.linalg.LinAlgError``, in its words."""


class CacheError(MaxBackendError):
    """The artifact cache cannot be used, or an archive is damaged or of no use on this machine."""


class InputError(ExecutionError, ValueError):
    """An argument of a loaded package is not what it was exported for."""


class PackageError(MaxBackendError):
    """A package cannot be written, is damaged, or is of no use on this machine."""
