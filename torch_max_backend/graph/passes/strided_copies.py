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
# Up to which step element-wise operations read a view by vectors: the parts of complex numbers.
_NEAR = 2


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
        if _is_read_in_place(node, view.meta["val"]):
            continue
        value, copy = view.meta["val"], node.meta["val"]
        sizes, strides = _fewest_dims(value)
        with module.graph.inserting_before(node):
            how = (root, sizes, strides, value.storage_offset())
            new = module.graph.call_function(aten.as_strided.default, how)
            new.meta = {**node.meta, "val": copy.view(sizes)}
            if sizes != list(copy.shape):
                new = module.graph.call_function(aten.view.default, (new, list(copy.shape)))
                new.meta = dict(node.meta)
        node.replace_all_uses_with(new)
        module.graph.erase_node(node)
        changed = True
    if changed:
        module.graph.eliminate_dead_code()


def _is_read_in_place(copy: Node, view: torch.Tensor) -> bool:
    """Whether only element-wise operations read the copy, which can read the view as fast."""
    steps = _steps(view)
    if steps[-1] > _NEAR or steps != sorted(steps, reverse=True):
        return False
    return all(torch.Tag.pointwise in getattr(user.target, "tags", ()) for user in copy.users)


def _fewest_dims(view: torch.Tensor) -> tuple[list[int], list[int]]:
    """Sizes and strides of the same elements in the same order, without dims of one element (the
    kernel takes the last as its lines) and with neighbours joined that one stride describes."""
    sizes: list[int] = []
    strides: list[int] = []
    for size, stride in zip(view.shape, view.stride(), strict=True):
        if size == 1:
            continue
        if sizes and strides[-1] == stride * size:
            sizes[-1] *= size
            strides[-1] = stride
        else:
            sizes.append(size)
            strides.append(stride)
    return sizes, strides


def _steps(view: torch.Tensor) -> list[int]:
    """Its strides along dims of more than one element."""
    return [step for size, step in zip(view.shape, view.stride(), strict=True) if size != 1]


def _is_slow(view: Any, copy: Any, root: Any) -> bool:
    numbers = [*view.shape, *view.stride(), *root.shape, *root.stride()]
    numbers += [view.storage_offset(), root.storage_offset()]
    if view.device.type != "cpu" or not all(isinstance(n, int) for n in numbers):
        return False
    steps = _steps(view)
    return (
        view.numel() >= _LEAST
        and steps[-1] != 1
        and 0 not in steps
        and root.is_contiguous()
        and copy.is_contiguous()
    )
