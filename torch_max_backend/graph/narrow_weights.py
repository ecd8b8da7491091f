"""Weights of 8 bits that a product is the only one to use widened: it takes them as they are.

A weight-only quantized layer is ``mm(x, weight.to(x.dtype)) * scale``. To write the widened weight
and read it again costs five times the reading of what is stored.
"""

from __future__ import annotations

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.graph.shapes import is_empty

aten = torch.ops.aten

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define("narrow_mm(Tensor mat1, Tensor mat2) -> Tensor")

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def _narrow_mm(mat1: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """What the operator means, in ATen."""
    return aten.mm(mat1, mat2.to(mat1.dtype))


_library.impl("narrow_mm", _narrow_mm, "CompositeExplicitAutograd")


def take_narrow_weights(module: GraphModule) -> None:
    """Replace products on CPU with a right operand that is cast from int8 for them alone."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target is not aten.mm.default:
            continue
        left, right = node.args
        narrow = _cast_from(right)
        if narrow is None or left.meta["val"].dtype != right.meta["val"].dtype:
            continue
        node.target = torch.ops.torch_max_backend.narrow_mm.default
        node.args = (left, narrow)
        changed = True
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()


def _cast_from(node: Node) -> Node | None:
    """What a node casts from int8, if that is all that it does and it has one user."""
    if node.target is not aten._to_copy.default or len(node.users) != 1:
        return None
    source = node.args[0]
    value, given = node.meta.get("val"), source.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(given, torch.Tensor):
        return None
    fits = given.dtype == torch.int8 and value.dtype in _FLOATS and not is_empty(value)
    on_cpu = value.device.type == given.device.type == "cpu"
    return source if fits and on_cpu else None
