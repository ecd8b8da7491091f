"""The cache key: everything that decides what the compiled artifact is, and never weights.

Computed from the FX graph, so that a warm start builds no MAX graph.
"""

from __future__ import annotations

import dataclasses
import json

import torch
from torch.fx import Node

from torch_max_backend.cache.compatibility import cache_key as cache_key
from torch_max_backend.cache.compatibility import digest, environment_components
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.graph.capability import fake_arguments
from torch_max_backend.graph.nested import every_node
from torch_max_backend.graph.serialize import text_of
from torch_max_backend.graph.trace import Trace
from torch_max_backend.registry.digest import lowering_digest, sources_vary
from torch_max_backend.registry.lowerings import registry


def components(trace: Trace) -> dict[str, str]:
    """What the key of a trace is made of, by name."""
    return {
        "bank": trace.signature.bank,
        "graph": digest(graph_text(trace)),
        "signature": digest(json.dumps(dataclasses.asdict(trace.signature), sort_keys=True)),
        "lowerings": lowerings_digest(trace),
        **environment_components(),
    }


def lowerings_digest(trace: Trace) -> str:
    """Digest of the lowerings that the graph uses."""
    used: dict[OpOverload, list[Node]] = {}
    for node in every_node(trace.module):
        if isinstance(node.target, OpOverload) and node.target in registry:
            used.setdefault(node.target, []).append(node)
    parts = []
    for op in sorted(used, key=str):
        calls = map(fake_arguments, used[op])
        parts.append(f"{op} {lowering_digest(registry[op], calls)}")
    return digest("\n".join(parts))


def sources_vary_in(trace: Trace) -> bool:
    """Whether a user's function of the arguments tells the Mojo sources of a node."""
    nodes = every_node(trace.module)
    used = {n.target for n in nodes if isinstance(n.target, OpOverload)} & registry.keys()
    return any(sources_vary(registry[op]) for op in used)


def graph_text(trace: Trace) -> str:
    """The graph with nodes numbered in order: targets, arguments, metadata, small constants."""
    number: dict[Node, int] = {}
    lines = []
    for i, node in enumerate(every_node(trace.module)):
        number[node] = i
        target = "" if node.op == "placeholder" else str(node.target)
        parts = [
            node.op,
            target,
            *(
                text_of(value, trace.symbols, lambda n: f"%{number[n]}")
                for value in (node.args, node.kwargs, node.meta.get("val"))
            ),
        ]
        if node in trace.embedded:
            tensor = trace.embedded[node].detach().cpu().contiguous()
            parts.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes().hex())
        lines.append(" ".join(parts))
    return "\n".join(lines)
