"""Copies of transposed and stepped views, as one strided copy.

MAX makes ``x.t().contiguous()`` element by element, each a jump in memory. A copy whose neighbours
are not neighbours in memory is written as ``as_strided`` of the memory that it is a view of, for
which there is a kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.graph.views import memory_of

aten = torch.ops.aten

# Below it a copy costs less than the kernel that does not fuse with what surrounds it.
_LEAST = 4096


def gather_copies(module: GraphModule) -> None:
    """Replace copies of views on CPU that are not read in the order of their memory."""
    changed = False
    for node in module.graph.nodes:
        if node.target is not aten.clone.default or not isinstance(node.args[0], Node):
            continue
        view = node.args[0]
        root = memory_of(view)
        if root is view or not _is_slow(view.meta["val"], node.meta["val"], root.meta["val"]):
            continue
        value = view.meta["val"]
        how = (list(value.shape), list(value.stride()), value.storage_offset())
        with module.graph.inserting_before(node):
            new = module.graph.call_function(aten.as_strided.default, (root, *how))
        new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        module.graph.erase_node(node)
        changed = True
    if changed:
        module.graph.eliminate_dead_code()


def _is_slow(view: Any, copy: Any, root: Any) -> bool:
    numbers = [*view.shape, *view.stride(), *root.shape, *root.stride()]
    numbers += [view.storage_offset(), root.storage_offset()]
    if view.device.type != "cpu" or not all(isinstance(n, int) for n in numbers):
        return False
    steps = [step for size, step in zip(view.shape, view.stride(), strict=True) if size != 1]
    return (
        view.numel() >= _LEAST
        and steps[-1] != 1
        and 0 not in steps
        and root.is_contiguous()
        and copy.is_contiguous()
    )
