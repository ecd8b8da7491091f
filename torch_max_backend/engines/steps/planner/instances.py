"""Which instance of a kernel a step calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from torch_max_backend.engines.steps.planner.plan import KernelStep, Memory
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.engines.steps.signatures import kernels
from torch_max_backend.errors import LibraryError


def instance_of(step: KernelStep, memory: Sequence[Memory]) -> Instance:
    """The instance of a step.

    Raises:
        LibraryError: Its kernel is of an operator that this process does not know, or whose
            lowering does not say which of several sources it is in.
    """
    tensors = [(memory[p.memory].dtype, len(p.shape)) for p in (*step.outputs, *step.inputs)]
    source = _source(step.owner) if step.owner else None
    return Instance.of(step.symbol, step.parameters, tensors, source)


def is_own(symbol: str) -> bool:
    """Whether a kernel is one of this package."""
    return symbol in _own()


@cache
def _own() -> frozenset[str]:
    return frozenset(kernels())


def _source(owner: str) -> Path:
    """The Mojo sources of the operator that has this name."""
    # A plan of our own kernels alone runs without what lowers graphs.
    from torch_max_backend.registry.lowerings import registry

    for op, lowering in registry.items():
        if str(op) == owner:
            found = lowering.kernels
            if isinstance(found, Path):
                return found
            raise LibraryError(f"The lowering of {owner} does not name one source of its kernels.")
    raise LibraryError(f"The operator {owner} is not registered here.")
