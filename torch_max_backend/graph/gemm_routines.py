"""Which routines of the bank a graph calls."""

from __future__ import annotations

import torch

from torch_max_backend.gemm_providers.provider import Provider
from torch_max_backend.graph.nested import every_node
from torch_max_backend.graph.signature_schema import ModelInput
from torch_max_backend.graph.trace import Trace
from torch_max_backend.registry.lowerings import registry


def use_bank(trace: Trace, provider: Provider) -> None:
    """Have a graph's matrix products on CPU computed by a provider: the addresses of the routines
    that it calls become inputs of its model."""
    wanted: set[str] = set()
    for node in every_node(trace.module):
        if node.target not in registry or not registry[node.target].bank:
            continue
        value = node.meta["val"]
        first = value[0] if isinstance(value, (list, tuple)) else value
        if first.device.type != "cpu":
            continue
        trace.signature.bank = provider.identity
        wanted.add(_routine(first.dtype))
    if wanted & provider.routines.keys():
        names = sorted({*wanted & provider.routines.keys(), "set_threads"})
        trace.signature.inputs += [
            ModelInput("address", source=f"{provider.name}.{name}") for name in names
        ]


def _routine(dtype: torch.dtype) -> str:
    # Attention and convolution see 16-bit floats as float32.
    half = dtype in (torch.float16, torch.bfloat16)
    return "float32" if half else str(dtype).removeprefix("torch.")
