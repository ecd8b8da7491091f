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
