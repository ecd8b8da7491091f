"""Views of one memory."""

from __future__ import annotations

import torch
from torch.fx import Node

aten = torch.ops.aten

_VIEWS = frozenset(
    {
        aten.alias.default, aten.detach.default, aten.diagonal.default, aten.expand.default,
        aten.permute.default, aten.select.int, aten.slice.Tensor, aten.squeeze.dim,
        aten.squeeze.dims, aten.t.default, aten.transpose.int, aten.unfold.default,
        aten.unsqueeze.default, aten.view.default,
    }
)  # fmt: skip


def memory_of(node: Node) -> Node:
    """The node whose memory a chain of views shows."""
    while node.target in _VIEWS and isinstance(node.args[0], Node):
        node = node.args[0]
    return node


def same_tensor(node: Node) -> Node:
    """The first node of a chain of views that is the same tensor, down to its strides."""
    found, layout = node, _layout(node)
    while node.target in _VIEWS and isinstance(node.args[0], Node):
        node = node.args[0]
        if layout is not None and _layout(node) == layout:
            found = node
    return found


def turned_from(node: Node, root: Node) -> tuple[int, ...] | None:
    """The order of ``root``'s dims in which a chain of views shows all of it, if it does no more
    than that."""
    chain = []
    while node is not root:
        chain.append(node)
        node = node.args[0]
    order = list(range(root.meta["val"].dim()))
    for view in reversed(chain):
        args = view.args[1:]
        if view.kwargs:
            return None
        if view.target is aten.t.default:
            order.reverse()
        elif view.target is aten.transpose.int:
            a, b = (int(dim) for dim in args)
            order[a], order[b] = order[b], order[a]
        elif view.target is aten.permute.default:
            order = [order[dim] for dim in args[0]]
        elif view.target not in (aten.alias.default, aten.detach.default):
            return None
    return tuple(order)


def _layout(node: Node) -> tuple[object, ...] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    # Symbolic sizes by their text: comparing them would add guards.
    numbers = [*value.shape, *value.stride(), value.storage_offset()]
    return value.dtype, value.dim(), *map(str, numbers)
