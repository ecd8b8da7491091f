"""What the driver makes of one ATen graph, whatever the strategy."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch

from torch_max_backend import environment
from torch_max_backend.options import Options

if TYPE_CHECKING:
    from torch_max_backend.graph.signature_schema import Signature

Function = Callable[[list[Any]], list[Any]]


@dataclass
class CompiledGraph:
    """A compiled graph and what is needed to load it again in another process.

    Attributes:
        function: Called with one list of arguments; returns the list of results.
        key: Key of its artifact in the store, "" where it is not stored.
        signature: How it is called.
        constants: Tensors of the traced graph that are inputs of the model.
        static: Positions of arguments whose memory rarely changes.
        replay: Whether kernel launches are captured and replayed, on a GPU.
        fuse: The option of that name.
        reusable: Whether AOTAutograd's key contains all that decides what this is.
        pack: The option of that name.
    """

    function: Function
    key: str
    signature: Signature
    constants: Mapping[str, torch.Tensor]
    static: Collection[int]
    replay: bool = False
    fuse: bool | None = None
    reusable: bool = True
    pack: bool = False


def caching(options: Options) -> bool:
    """Whether artifacts are kept on disk."""
    return environment.cache_enabled() if options.cache is None else options.cache


class Unit(Protocol):
    """What every strategy offers for a graph: one engine for all of it, candidates that are timed,
    or parts with eager PyTorch between them."""

    def graph(self, function: Function) -> CompiledGraph:
        """The graph, to be run by ``function``."""
        ...

    def functions(self, *others: Any) -> list[Function]:
        """The functions of this graph and of others of the same strategy, which are compiled
        together."""
        ...

    def in_background(self) -> Function:
        """The function; eager PyTorch runs until it is ready, unless it is ready at once."""
        ...
