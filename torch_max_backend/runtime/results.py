"""From what ran to what torch expects: strides of results, and errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from torch_max_backend.errors import ExecutionError, IndexOutOfBoundsError, LinearAlgebraError
from torch_max_backend.graph.expressions import evaluator
from torch_max_backend.graph.signature_schema import Layout, Signature
from torch_max_backend.graph.views import Call

# What kernels of linear algebra raise.
_LINALG = re.compile(r"LinAlgError<(.*?)>", re.DOTALL)


class Rebuild:
    """Undoes a ``Layout``: from the model's contiguous output to torch's sizes and strides."""

    def __init__(self, layout: Layout, names: list[str]) -> None:
        self._inverse: list[int] | None = None
        if layout.order is not None:
            self._inverse = [layout.order.index(i) for i in range(len(layout.order))]
        self._sizes = evaluator_or_none(list(layout.sizes), names)
        self._strides = evaluator_or_none(list(layout.strides), names)

    @classmethod
    def of(cls, layout: Layout, names: list[str]) -> Rebuild | None:
        return None if layout.is_contiguous else cls(layout, names)

    @property
    def turned(self) -> tuple[int, ...] | None:
        """The order of the dims, if that is all that differs."""
        if self._sizes is not None or self._strides is not None or self._inverse is None:
            return None
        return tuple(self._inverse)

    def __call__(self, result: torch.Tensor, symbols: Sequence[int]) -> torch.Tensor:
        if self._strides is not None and self._sizes is not None:
            strides = self._strides(*symbols)
            made = torch.empty_strided(
                self._sizes(*symbols), strides, dtype=result.dtype, device=result.device
            )
            to = made
            for dim, stride in enumerate(strides):
                # What is expanded is one element, and is written once.
                if stride == 0 and made.shape[dim] > 1:
                    to, result = to.narrow(dim, 0, 1), result.narrow(dim, 0, 1)
            to.copy_(result)
            return made
        if self._inverse is not None:
            result = result.permute(self._inverse)
        if self._sizes is not None:
            result = result.expand(self._sizes(*symbols))
        return result


def evaluator_or_none(texts: list[str], names: list[str]) -> Callable[..., list[Any]] | None:
    """One function for all texts, ``None`` if there are none."""
    return evaluator(texts, names) if texts else None


def returned(
    places: Iterable[tuple[str, int]],
    results: Sequence[Any],
    arguments: Sequence[Any],
    scalars: Iterable[Any],
    views: Mapping[int, Sequence[Call]] = MappingProxyType({}),
) -> list[Any]:
    """What a graph returns: of each output, its kind and its place among results or arguments;
    ``views`` is what `argument_views` tells."""
    remaining = iter(scalars)
    found: list[Any] = [
        results[index]
        if kind == "value"
        else arguments[index]
        if kind == "input"
        else next(remaining)
        if kind == "scalar"
        else None
        for kind, index in places
    ]
    for k, calls in views.items():
        for name, numbers in calls:
            found[k] = getattr(found[k], name)(*numbers)
    return found


def argument_views(signature: Signature) -> dict[int, Sequence[Call]]:
    """The outputs that are views of arguments, and the calls that take them."""
    return {k: o.views for k, o in enumerate(signature.outputs) if o.views}


def check(values: Sequence[Any], checks: Sequence[tuple[str, str]]) -> None:
    """Raise what the program asked for if a condition on sizes does not hold; the conditions are
    the last of the values."""
    for holds, (_, message) in zip(values[len(values) - len(checks) :], checks, strict=True):
        if not holds:
            raise RuntimeError(message)


def execution_error(error: Exception, signature: Signature, arguments: list[Any]) -> ExecutionError:
    """What went wrong while a graph ran, as an exception of ours with the arguments' shapes."""
    described = [
        f"{a.dtype}{list(a.shape)} on {a.device}" if isinstance(a, torch.Tensor) else repr(a)
        for a in (arguments[i.index] for i in signature.inputs if i.kind == "tensor")
    ]
    shown = ", ".join(described[:8]) + (", ..." if len(described) > 8 else "")
    failed = _LINALG.search(str(error))
    if failed:
        return LinearAlgebraError(failed[1], f"  Arguments: {shown}")
    kind = IndexOutOfBoundsError if "out of bounds" in str(error) else ExecutionError
    found = kind(
        "The compiled graph failed while it ran.",
        f"  What it says: {str(error).strip()}",
        f"  Arguments: {shown}",
        "Check values that decide validity (indices, sizes); eager PyTorch on the same inputs "
        "tells whether the program or the backend is at fault.",
    )
    found.wrote = any(i.mutated for i in signature.inputs)
    return found
