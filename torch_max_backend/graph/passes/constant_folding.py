"""Constant folding.

MAX folds constants too, but it compiles a module of its own to do so, which costs as much again as
the front end's work on the whole graph.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.tracing import pytree
from torch_max_backend.graph.trace import attribute

aten = torch.ops.aten

# Elements of the largest tensor to compute ahead.
_MOST = 1 << 20
# One value everywhere: MAX broadcasts it where it is used, which no stored tensor is worth.
_UNIFORM = frozenset(
    {
        aten.full, aten.full_like, aten.zeros, aten.zeros_like, aten.ones, aten.ones_like,
        aten.scalar_tensor, aten.new_full, aten.new_zeros, aten.new_ones, aten.empty,
        aten.empty_like, aten.new_empty, aten.empty_strided, aten.new_empty_strided,
        aten.empty_permuted, aten.expand,
    }
)  # fmt: skip


def fold_constants(module: GraphModule) -> None:
    """Replace what does not depend on the arguments by attributes of the module."""
    known: dict[Node, torch.Tensor] = {}
    for node in module.graph.nodes:
        value = _computed(module, node, known)
        if value is not None:
            known[node] = value
    for node, value in known.items():
        if node.op == "get_attr" or not _worth_storing(node, known):
            continue
        name = f"_folded_{len(module.graph.nodes)}_{node.name}"
        setattr(module, name, value)
        with module.graph.inserting_before(node):
            stored = module.graph.create_node("get_attr", name)
        stored.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(stored)
    for node in reversed(list(known)):
        if not node.users:
            module.graph.erase_node(node)
    if known:
        module.recompile()


def _computed(
    module: GraphModule, node: Node, known: dict[Node, torch.Tensor]
) -> torch.Tensor | None:
    """The value of a node, if it is a tensor that nothing can change."""
    if any(n not in known for n in node.all_input_nodes) or not _is_fixed(node.meta.get("val")):
        return None
    if node.op == "get_attr":
        return attribute(module, str(node.target))
    if node.op != "call_function" or not isinstance(node.target, OpOverload):
        return None
    op = node.target
    if op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags:
        return None

    def real(value: Any) -> Any:
        return known[value] if isinstance(value, Node) else value

    args, kwargs = pytree.tree_map(real, (node.args, dict(node.kwargs)))
    with torch.no_grad():
        value = op(*args, **kwargs)
    # Strides as promised, memory of its own.
    return value.clone() if isinstance(value, torch.Tensor) else None


def _is_fixed(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and all(isinstance(s, int) for s in value.shape)
        and value.numel() <= _MOST
    )


def _worth_storing(node: Node, known: dict[Node, torch.Tensor]) -> bool:
    """Whether something that is not folded uses a node; results must be memory of their own."""
    packet = node.target.overloadpacket if isinstance(node.target, OpOverload) else None
    if packet in _UNIFORM or any(u.op == "output" for u in node.users):
        return False
    return any(u not in known for u in node.users)
