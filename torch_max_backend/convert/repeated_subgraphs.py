"""Equal layers of a graph that is only read, not compiled: the first is converted; the reader
of the graph puts what it became in the places of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from max.graph import TensorValue

from torch_max_backend.graph.repeated_subgraphs import Instance, Region


@dataclass(frozen=True, eq=False)
class Repeat:
    """A region whose first instance is converted for all.

    Attributes:
        first: That instance.
        varying: Positions of the inputs that are not the same node for all instances.
        outputs: Positions among the nodes of an instance whose values are used outside of it.
    """

    first: Instance
    varying: tuple[int, ...]
    outputs: tuple[int, ...]


@runtime_checkable
class RepeatingGraph(Protocol):
    """A MAX graph that keeps the place of an instance instead of its operations."""

    def veiled(self, values: Sequence[TensorValue]) -> list[TensorValue]:
        """Stand-ins for values, of which nothing is known but the type."""

    def keep(self, repeat: Repeat, results: Sequence[TensorValue]) -> None:
        """Remember what the first instance became, once it is converted."""

    def repeat(
        self, repeat: Repeat, instance: Instance, given: Sequence[TensorValue]
    ) -> list[TensorValue]:
        """Results of another instance, whose varying inputs are ``given``."""


def repeat_of(region: Region) -> Repeat | None:
    """How a region is repeated; ``None`` if something else than tensors crosses its border, or if
    its instances are given the same."""
    first = region.instances[0]
    crossing = [*first.inputs, *(first.nodes[o] for o in region.outputs)]
    if not all(isinstance(n.meta.get("val"), torch.Tensor) for n in crossing):
        return None
    columns = enumerate(zip(*(i.inputs for i in region.instances), strict=True))
    varying = tuple(i for i, nodes in columns if len(set(nodes)) > 1)
    return Repeat(first, varying, region.outputs) if varying else None


__all__ = ["Repeat", "RepeatingGraph", "repeat_of"]
