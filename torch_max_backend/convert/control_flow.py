"""``cond`` and ``while_loop`` as MAX's own control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from torch_max_backend.convert.context import TensorSpec
from torch_max_backend.convert.registry import Refusal
from torch_max_backend.graph.nested import CONTROL_FLOW
from torch_max_backend.ops.common.promotion import full

# Converts the body of a graph for given operands: its results.
Body = Callable[[GraphModule, Sequence[Any]], list[TensorValue]]

_OTHERS = "cond and while_loop are converted, map and scan over a known length too"


def control_flow_refusal(node: Node) -> Refusal | None:
    """Why a higher-order operator cannot be converted, or ``None``."""
    if "triton" in str(node.target):
        return Refusal(
            "a Triton kernel, which MAX cannot run; keep the call out of the compiled region with "
            "torch.compiler.disable, or write it in Mojo (torch_max_backend.mojo_op)"
        )
    if node.target not in CONTROL_FLOW:
        return Refusal(f"this higher-order operator is not converted ({_OTHERS})")
    results = node.meta["val"]
    if not all(isinstance(v, torch.Tensor) for v in results):
        return Refusal("a result of the branches or of the loop is no tensor")
    if free_unbacked_symbols(results):
        return Refusal("the size of its result depends on the data")
    return None


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
    if node.target is torch.ops.higher_order.cond:
        choice, chosen, otherwise, operands = (values(a) for a in node.args)
        if isinstance(choice, bool):
            return convert(chosen if choice else otherwise, operands)
        flag = _flag(choice)
        branches = []
        for branch in (chosen, otherwise):
            inside = any(n.target in CONTROL_FLOW for n in branch.graph.nodes)
            branches.append(None if inside else branch)
        # MAX verifies what is inside a branch before the branch is part of the graph, and so
        # finds control flow in it invalid: such a branch is a loop of one round, after the rest.
        results = ops.cond(
            flag,
            types,
            *(
                lambda b=b: _zeros(types) if b is None else _retyped(convert(b, operands), types)
                for b in branches
            ),
        )
        for branch, whole, wanted in zip(
            branches, (chosen, otherwise), (flag, ops.logical_not(flag)), strict=True
        ):
            if branch is None:
                results = _if(
                    wanted,
                    results,
                    lambda given, w=whole: _retyped(convert(w, given), types),
                    operands,
                )
        return results
    condition, body, carried, additional = (values(a) for a in node.args)
    return _loop(
        _retyped(carried, types),
        additional,
        lambda given: _flag(convert(condition, given)[0]),
        lambda given: _retyped(convert(body, given), types),
    )


def _loop(
    carried: Sequence[TensorValue],
    fixed: Sequence[Any],
    condition: Callable[[list[Any]], TensorValue],
    body: Callable[[list[Any]], Sequence[TensorValue]],
) -> list[TensorValue]:
    """A loop whose functions take the carried and the fixed values. The fixed ones are carried
    too: MAX verifies what is inside the body before the body is part of the graph, and finds
    values from around it invalid there."""
    tensors = [v for v in fixed if isinstance(v, TensorValue)]

    def given(values: Sequence[TensorValue]) -> list[Any]:
        rest = iter(values[len(carried) :])
        fixed_now = [next(rest) if isinstance(v, TensorValue) else v for v in fixed]
        return [*values[: len(carried)], *fixed_now]

    results = ops.while_loop(
        [*carried, *tensors],
        lambda *values: condition(given(values)),
        lambda *values: [*body(given(values)), *values[len(carried) :]],
    )
    return results[: len(carried)]


def _if(
    wanted: TensorValue,
    results: Sequence[TensorValue],
    others: Callable[[list[Any]], Sequence[TensorValue]],
    operands: Sequence[Any],
) -> list[TensorValue]:
    """``others`` of the operands where ``wanted``, else ``results``: a loop of at most a round."""
    _, *results = _loop(
        [wanted, *results],
        operands,
        lambda given: given[0],
        lambda given: [
            ops.constant(False, DType.bool, DeviceRef.CPU()),
            *others(given[1 + len(results) :]),
        ],
    )
    return results


def _zeros(types: Sequence[TensorType]) -> list[TensorValue]:
    return [full(0, t.dtype, t.shape, t.device) for t in types]


def _flag(value: TensorValue) -> TensorValue:
    return ops.reshape(value, []).to(DeviceRef.CPU())


def _retyped(values: Sequence[TensorValue], types: Sequence[TensorType]) -> list[TensorValue]:
    """The values under the sizes' names that torch gives them."""
    return [
        v if list(v.shape) == list(t.shape) else ops.rebind(v, t.shape)
        for v, t in zip(values, types, strict=True)
    ]
