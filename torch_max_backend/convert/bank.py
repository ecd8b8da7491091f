"""Which routines of the bank a graph calls."""

from __future__ import annotations

import torch

from torch_max_backend.bank.provider import provider
from torch_max_backend.convert.registry import registry
from torch_max_backend.graph.signature import ModelInput, Trace

_ROUTINES = {
    torch.float32: "float32",
    torch.float16: "float32",
    torch.bfloat16: "float32",
    torch.float64: "float64",
}


def add_addresses(trace: Trace) -> None:
    """Make the addresses of the routines that the graph calls inputs of its model."""
    wanted: set[str] = set()
    for node in trace.module.graph.nodes:
        if node.target not in registry or not registry[node.target].bank:
            continue
        value = node.meta["val"]
        first = value[0] if isinstance(value, (list, tuple)) else value
        if first.device.type == "cpu" and first.dtype in _ROUTINES:
            wanted.add(_ROUTINES[first.dtype])
    if wanted and provider() is not None:
        names = sorted({*wanted, "set_threads"})
        trace.signature.inputs += [ModelInput("address", source=name) for name in names]


def uses_bank(trace: Trace) -> bool:
    """Whether the graph calls routines of the bank."""
    return any(i.kind == "address" for i in trace.signature.inputs)
