"""Arguments that a graph writes to in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from max.graph import BufferValue, Graph, TensorValue, ops
from torch.fx import Node

from torch_max_backend.compat.max_graphs import mo


class WrittenArguments:
    """Loads and stores of a graph's buffers, those of each buffer on a chain of its own.

    MAX's API puts all into one chain, and its compiler takes time exponential in the number of
    buffers to take that apart (26.7: 43 CPU s for 30 buffers, 123 for 34), as when an optimizer's
    step is compiled. Buffers share no memory, so only accesses of the same one need an order.
    """

    def __init__(self) -> None:
        self._buffers: dict[Node, tuple[BufferValue, Any]] = {}

    def load(self, node: Node, buffer: BufferValue) -> TensorValue:
        """The value of an argument before anything is written."""
        chains = Graph.current.device_chains
        before = chains[buffer.device]
        value = ops.buffer_load(buffer)
        self._buffers[node] = buffer, chains[buffer.device]
        chains[buffer.device] = before
        return value

    def store(self, values: Iterable[tuple[Node, TensorValue]]) -> None:
        """Write the new values of arguments, when nothing else is left to compute."""
        chains = Graph.current.device_chains
        ends: dict[Any, list[Any]] = {}
        for node, value in values:
            buffer, loaded = self._buffers[node]
            before, chains[buffer.device] = chains[buffer.device], loaded
            ops.buffer_store(buffer, value)
            ends.setdefault(buffer.device, [before]).append(chains[buffer.device])
            chains[buffer.device] = before
        for device, parts in ends.items():
            chains[device] = Graph.current._add_op_generated(
                mo.ChainCreateOp, result=mo.ChainType(), inputs=parts, attach_profile_scopes=False
            )[0]
