"""A traced graph: its module, signature and symbols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.errors import UnsupportedOperatorError
from torch_max_backend.graph.shapes import Symbols
from torch_max_backend.graph.signature_schema import Signature


@dataclass
class Trace:
    """A traced graph with its signature and the FX nodes behind it (conversion needs both).

    Attributes:
        module: The graph module.
        signature: Its signature.
        symbols: Names of its symbols.
        placeholders: Its placeholder nodes.
        stored: By placeholder the node that the model takes in its place, its dims in the order
            of memory.
        results: The FX node behind each model output.
        stores: Mutated placeholders written in place, with the node of the new value.
        embedded: ``get_attr`` nodes whose tensors become constants of the MAX graph.
        calls: Whether parts that repeat become subgraphs.
    """

    module: GraphModule
    signature: Signature
    symbols: Symbols
    placeholders: list[Node]
    stored: Mapping[Node, Node]
    results: list[Node]
    stores: list[tuple[Node, Node]]
    embedded: dict[Node, torch.Tensor]
    calls: bool = True

    def constants(self) -> dict[str, torch.Tensor]:
        """The tensors of the graph module that are inputs of the model, by attribute."""
        inputs = (i for i in self.signature.inputs if i.kind == "constant")
        return {i.source: attribute(self.module, i.source) for i in inputs}


def attribute(module: GraphModule, target: str) -> torch.Tensor:
    """The tensor behind a ``get_attr`` node.

    Raises:
        UnsupportedError: The attribute is no tensor (a submodule of a higher-order operator, a
            generator).
    """
    value: Any = module
    for name in target.split("."):
        value = getattr(value, name)
    if isinstance(value, torch.Generator):
        raise UnsupportedOperatorError(
            "The graph draws from an explicit generator; seeds are drawn from torch's own.",
            "Leave out generator=, or keep the region out with torch.compiler.disable.",
        )
    if not isinstance(value, torch.Tensor):
        raise UnsupportedOperatorError(
            f"The graph holds {target!r}, a {type(value).__name__}: higher-order operators "
            "(cond, while_loop, scan, flex_attention, ...) are not converted.",
            "Rewrite the region without it, or keep it out with torch.compiler.disable.",
        )
    return value
