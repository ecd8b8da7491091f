"""Which instance of a kernel a step calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from torch_max_backend.engines.steps.planner.plan import KernelStep, Memory
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.engines.steps.signatures import Signature, kernels, signature
from torch_max_backend.errors import LibraryError

# Kernels that only move the elements of their first result: of each width one is built.
_MOVING = frozenset(
    {"tmb_gather", "tmb_padded", "tmb_slice_scatter", "tmb_strided", "tmb_take", "tmb_take_true"}
)
# The same where they write and do not combine.
_SCATTERING = frozenset({"tmb_scatter_elements", "tmb_scatter_rows"})
_OF_WIDTH = {
    **dict.fromkeys(("bool", "int8"), "uint8"),
    **dict.fromkeys(("int16", "float16", "bfloat16"), "uint16"),
    **dict.fromkeys(("int32", "float32"), "uint32"),
    **dict.fromkeys(("int64", "float64"), "uint64"),
}


def instance_of(step: KernelStep, memory: Sequence[Memory]) -> Instance:
    """The instance of a step.

    Raises:
        LibraryError: Its kernel is of an operator that this process does not know, or whose
            lowering does not say which of several sources it is in.
    """
    tensors = [(memory[p.memory].dtype, len(p.shape)) for p in (*step.outputs, *step.inputs)]
    source = _source(step.owner) if step.owner else None
    writes = step.symbol in _SCATTERING and step.parameters["kind"] == "write"
    if writes or step.symbol in _MOVING:
        tensors = _moved(step.symbol, tensors)
    return Instance.of(step.symbol, step.parameters, tensors, source)


def _moved(symbol: str, tensors: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """The operands of a kernel that moves elements, as numbers of their width."""
    of = signature(symbol)
    assert isinstance(of, Signature)
    moved = of.arguments[0].dtype
    return [
        (_OF_WIDTH.get(dtype, dtype) if argument.dtype == moved else dtype, rank)
        for argument, (dtype, rank) in zip(of.arguments, tensors, strict=True)
    ]


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
