"""The graphs inside a graph: bodies of ``cond`` and ``while_loop``."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

CONTROL_FLOW = frozenset({torch.ops.higher_order.cond, torch.ops.higher_order.while_loop})


def body(module: GraphModule, node: Node) -> GraphModule | None:
    """The graph that a ``get_attr`` node names, if it is one."""
    value: object = module
    for name in str(node.target).split("."):
        value = getattr(value, name, None)
    return value if isinstance(value, GraphModule) else None


def nested_modules(module: GraphModule) -> Iterator[GraphModule]:
    """The graphs inside a graph, and those inside them, in order of appearance."""
    for node in module.graph.nodes:
        if node.op == "get_attr":
            inner = body(module, node)
            if inner is not None:
                yield inner
                yield from nested_modules(inner)


def every_node(module: GraphModule) -> Iterator[Node]:
    """The nodes of a graph and of those inside it."""
    yield from module.graph.nodes
    for inner in nested_modules(module):
        yield from inner.graph.nodes
