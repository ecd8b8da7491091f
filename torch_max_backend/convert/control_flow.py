"""``cond`` and ``while_loop`` as MAX's own control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from max.graph import DeviceRef, Graph, TensorType, TensorValue, ops
from torch.fx import GraphModule, Node

from torch_max_backend.convert.context import TensorSpec

# Converts the body of a graph for given operands: its results.
Body = Callable[[GraphModule, Sequence[Any]], list[TensorValue]]


def converted(
    node: Node, values: Callable[[Any], Any], specs: Sequence[TensorSpec], convert: Body
) -> list[TensorValue]:
    """The results of a ``cond`` or ``while_loop`` node.

    Args:
        node: ``cond(pred, true_graph, false_graph, operands)`` or ``while_loop(cond_graph,
            body_graph, carried, additional)``.
        values: The MAX value of an argument of the node; its module, of a graph.
        specs: What torch says the results are.
        convert: Converts a body.
    """
    types = [TensorType(s.dtype, s.shape, s.device) for s in specs]

    def results(graph: GraphModule, given: Sequence[Any]) -> list[TensorValue]:
        # What is inside is checked with the whole: MAX finds what it takes from around it, and
        # control flow of its own, invalid before it is part of the graph.
        with Graph.current._pause_verification():
            return _retyped(convert(graph, given), types)

    if node.target is torch.ops.higher_order.cond:
        choice, chosen, otherwise, operands = (values(a) for a in node.args)
        if isinstance(choice, bool):
            return convert(chosen if choice else otherwise, operands)
        return ops.cond(
            _flag(choice),
            types,
            lambda: results(chosen, operands),
            lambda: results(otherwise, operands),
        )
    condition, body, carried, additional = (values(a) for a in node.args)

    def goes_on(*given: TensorValue) -> TensorValue:
        with Graph.current._pause_verification():
            return _flag(convert(condition, [*given, *additional])[0])

    return ops.while_loop(
        _retyped(carried, types),
        goes_on,
        lambda *given: results(body, [*given, *additional]),
    )


def _flag(value: TensorValue) -> TensorValue:
    return ops.reshape(value, []).to(DeviceRef.CPU())


def _retyped(values: Sequence[TensorValue], types: Sequence[TensorType]) -> list[TensorValue]:
    """The values under the sizes' names that torch gives them."""
    return [
        v if list(v.shape) == list(t.shape) else ops.rebind(v, t.shape)
        for v, t in zip(values, types, strict=True)
    ]
