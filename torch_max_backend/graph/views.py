"""Views of one memory."""

from __future__ import annotations

from typing import Any

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

_RESHAPING = frozenset(
    {
        aten.view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.dims,
    }
)  # fmt: skip
# A method of `torch.Tensor` that takes a view, and its numbers.
Call = tuple[str, tuple[int, ...]]
CALLS = frozenset({"reshape", "expand", "permute", "transpose", "select", "narrow"})


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


def calls_from(node: Node, root: Node) -> tuple[Call, ...] | None:
    """The calls of `torch.Tensor` that make a chain of views of ``root``, if they are known and no
    size of them varies."""
    chain = []
    while node is not root:
        chain.append(node)
        node = node.args[0]
    calls = []
    for view in reversed(chain):
        call = _call(view)
        if call is None or not all(isinstance(n, int) for n in call[1]):
            return None
        if call[0] != "alias":
            calls.append(call)
    return tuple(calls)


def _call(view: Node) -> Call | None:
    value, target = view.meta["val"], view.target
    args: Any = view.args[1:]
    if view.kwargs:
        return None
    if target in _RESHAPING:
        return "reshape", tuple(value.shape)
    if target is aten.expand.default:
        return "expand", tuple(value.shape)
    if target is aten.t.default:
        return "permute", tuple(reversed(range(value.dim())))
    if target is aten.permute.default:
        return "permute", tuple(args[0])
    if target is aten.transpose.int or target is aten.select.int:
        return target._opname, args
    if target is aten.slice.Tensor:
        dim, start, _, step = tuple(args) + (0, 0, 0, 1)[len(args) :]
        size = view.args[0].meta["val"].shape[dim]
        if step != 1 or not isinstance(start, int) or not isinstance(size, int):
            return None
        begin = min(start + size if start < 0 else start, size)
        return "narrow", (dim, max(begin, 0), value.shape[dim])
    return ("alias", ()) if target in (aten.alias.default, aten.detach.default) else None


def _layout(node: Node) -> tuple[object, ...] | None:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return None
    # Symbolic sizes by their text: comparing them would add guards.
    numbers = [*value.shape, *value.stride(), value.storage_offset()]
    return value.dtype, value.dim(), *map(str, numbers)
