"""Arguments and results in the order of their memory.

MAX reads and writes contiguous memory. A permuted argument whose memory is dense, and a result for
which torch promises the strides of a permuted tensor, are contiguous in another order of their
dims: the runtime takes a view, and the permutation is part of the graph, where a kernel may take
it for nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Collection

import torch
from torch.fx import Graph, GraphModule, Node

from torch_max_backend.graph.layout import memory_order, output_layout
from torch_max_backend.graph.shapes import Symbols, is_empty
from torch_max_backend.graph.signature_schema import Layout

# Marks nodes that the runtime computes, with views, not the model.
RUNTIME = "computed_by_runtime"

# On the output node that the runtime makes, the node that the model computes in its place.
_MADE_OF = "made_of"
_LAYOUT = "layout"

_permute = torch.ops.aten.permute.default


def model_result(item: Node) -> Node:
    """The node that the model computes for a result."""
    return item.meta.get(_MADE_OF, item)


def layout_of(node: Node) -> Layout:
    """What the runtime makes of what the model returns for a node."""
    return node.meta.get(_LAYOUT, Layout())


def reorder_arguments(module: GraphModule, mutated: Collection[Node]) -> dict[Node, Node]:
    """Let the model take permuted arguments as they lie in memory.

    Args:
        module: The graph, changed in place; what it computes stays the same.
        mutated: Placeholders that the model writes to; they are left alone.

    Returns:
        For each such placeholder the node that is the model's input in its place.
    """
    graph, taken = module.graph, {}
    for node in [n for n in graph.nodes if n.op == "placeholder"]:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or node in mutated or not node.users:
            continue
        order = memory_order(value)
        if order is None:
            continue
        users = set(node.users)
        first = next(n for n in graph.nodes if n in users)
        if first.op == "output":
            continue
        taken[node] = as_stored = _permuted(graph, first, node, order)
        as_stored.meta[RUNTIME] = True
        natural = _permuted(graph, first, as_stored, _inverse(order))
        for user in users:
            # A result that is an argument stays one.
            if user.op != "output":
                user.replace_input_with(node, natural)
    return taken


def reorder_results(
    module: GraphModule, symbols: Symbols, exact: int | None, given: Collection[Node] = ()
) -> dict[Node, Node]:
    """Decide how the model returns each result, and let it return permuted ones as torch stores
    them.

    Args:
        module: The graph, changed in place; what it computes stays the same.
        symbols: Names of its symbols.
        exact: How many results need the very strides that torch promised, the first ones; those
            behind, which only the backward graph sees, are spared the copies that some take.
            ``None``: all.
        given: Results that the runtime makes of arguments; they are left alone.

    Returns:
        For each result the node that is returned in its place.
    """
    graph = module.graph
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    results = list(output.args[0])
    seen: dict[Node, Node] = {}
    for i, item in enumerate(results):
        value = item.meta.get("val") if isinstance(item, Node) else None
        if not isinstance(value, torch.Tensor) or item.op == "placeholder" or item in given:
            continue
        if item not in seen:
            seen[item] = _result(graph, output, item, symbols, exact is None or i < exact)
        results[i] = seen[item]
    output.args = (type(output.args[0])(results),)
    return seen


def _result(graph: Graph, output: Node, item: Node, symbols: Symbols, exact: bool) -> Node:
    value = item.meta["val"]
    layout = output_layout(value, symbols)
    if layout.strides and not exact and not is_empty(value):
        layout = Layout(order=memory_order(value))
    if layout.order is None or layout.narrowed:
        item.meta[_LAYOUT] = layout
        return item
    # Right behind what makes it, so that it is part of the same layer.
    following = _behind(item)
    stored = _permuted(graph, following, item, layout.order)
    stored.meta[_LAYOUT] = layout
    made = _permuted(graph, output, stored, _inverse(layout.order))
    made.meta |= {RUNTIME: True, _MADE_OF: stored}
    return made


def _behind(node: Node) -> Node:
    following = node.next
    while following.op in ("placeholder", "get_attr") or following.target is operator.getitem:
        following = following.next
    return following


def _permuted(graph: Graph, before: Node, node: Node, order: Collection[int]) -> Node:
    with graph.inserting_before(before):
        made = graph.call_function(_permute, (node, list(order)))
    made.meta["val"] = node.meta["val"].permute(list(order))
    for key in ("stack_trace", "nn_module_stack"):
        if key in node.meta:
            made.meta[key] = node.meta[key]
    return made


def _inverse(order: Collection[int]) -> list[int]:
    return [list(order).index(i) for i in range(len(order))]
