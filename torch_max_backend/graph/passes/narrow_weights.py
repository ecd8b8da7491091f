"""Weights of 8 bits that a product is the only one to use widened: it takes them as they are.

A weight-only quantized layer is ``mm(x, weight.to(x.dtype)) * scale`` or ``mm(x, (weight.to(float)
* scale).T)``. To write the widened weight and read it again costs five times the reading of what is
stored.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.graph.passes import float8  # noqa: F401  it defines operators
from torch_max_backend.graph.shapes import is_empty

aten = torch.ops.aten
own = torch.ops.torch_max_backend

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define("narrow_mm(Tensor mat1, Tensor mat2) -> Tensor")
_library.define(
    "scaled_mm(Tensor? self, Tensor mat1, Tensor mat2, Tensor scales, str kind) -> Tensor"
)

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_TURNS = (aten.t.default, aten.permute.default, aten.transpose.int)


def _narrow_mm(mat1: torch.Tensor, mat2: torch.Tensor) -> torch.Tensor:
    """What the operator means, in ATen."""
    return aten.mm(mat1, mat2.to(mat1.dtype))


def _scaled_mm(
    self: torch.Tensor | None,
    mat1: torch.Tensor,
    mat2: torch.Tensor,
    scales: torch.Tensor,
    kind: str,
) -> torch.Tensor:
    """What the operator means, in ATen."""
    wide = mat2 if kind == "int8" else own.from_float8(mat2, kind, torch.float32)
    result = aten.mm(mat1.float(), wide.float() * scales)
    return (result if self is None else result + self).to(mat1.dtype)


_library.impl("narrow_mm", _narrow_mm, "CompositeExplicitAutograd")
_library.impl("scaled_mm", _scaled_mm, "CompositeExplicitAutograd")


class _Weight(NamedTuple):
    """A weight of 8 bits, ``[K, N]``, or ``[N, K]`` if it is turned; its kind is "int8" or one of
    float8. Its scale, a node of rank 2, belongs to columns, if there is one."""

    node: Node
    kind: str
    turned: bool
    scale: Node | None


def take_narrow_weights(module: GraphModule) -> None:
    """Replace products on CPU with a right operand that is widened for them alone."""
    changed = False
    for node in list(module.graph.nodes):
        if node.target is aten.mm.default:
            bias, (left, right) = None, node.args
        elif node.target is aten.addmm.default and not node.kwargs:
            bias, left, right = node.args
        else:
            continue
        weight = _weight(right)
        if weight is None or left.meta["val"].dtype != right.meta["val"].dtype:
            continue
        if weight.scale is None:
            if bias is None and weight.kind == "int8":
                with module.graph.inserting_before(node):
                    right = _upright(weight, node)
                node.target, node.args = own.narrow_mm.default, (left, right)
                changed = True
        elif bias is None or _is_bias(bias.meta["val"], right.meta["val"]):
            _scaled(module, node, bias, left, weight)
            changed = True
    if changed:
        module.graph.eliminate_dead_code()
        module.recompile()


def _scaled(
    module: GraphModule, node: Node, bias: Node | None, left: Node, weight: _Weight
) -> None:
    """Make a node the product with a scaled weight."""
    scale = weight.scale
    assert scale is not None
    with module.graph.inserting_before(node):
        right = _upright(weight, node)
        scale = _made(node, aten.select.int, scale, 1 if weight.turned else 0, 0)
        columns = right.meta["val"].shape[1]
        if scale.meta["val"].shape[0] != columns:
            scale = _made(node, aten.expand.default, scale, [columns])
    node.target = own.scaled_mm.default
    node.args = (bias, left, right, scale, weight.kind)


def _upright(weight: _Weight, node: Node) -> Node:
    """The weight as ``[K, N]``, before a node."""
    return _made(node, aten.permute.default, weight.node, [1, 0]) if weight.turned else weight.node


def _made(like: Node, target: OpOverload, source: Node, *args: object) -> Node:
    new = like.graph.call_function(target, (source, *args))
    new.meta = {**like.meta, "val": target(source.meta["val"], *args)}
    return new


def _is_bias(bias: torch.Tensor, right: torch.Tensor) -> bool:
    return bias.dim() == 1 and bias.dtype == right.dtype and bias.shape[0] == right.shape[1]


def _weight(node: Node) -> _Weight | None:
    """What the right operand of a product was widened from."""
    turned = False
    while node.target in _TURNS and len(node.users) == 1 and node.meta["val"].dim() == 2:
        if node.args[1:] not in ((), ([1, 0],), (0, 1), (1, 0)):
            return None
        node, turned = node.args[0], not turned
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype not in _FLOATS or value.dim() != 2:
        return None
    scale = None
    if node.target is not aten.mul.Tensor and _is_alone(node, aten._to_copy.default):
        source = node.args[0]
        if source.target is aten.mul.Tensor:
            node = source
    if _is_alone(node, aten.mul.Tensor):
        found = [_scale_of(node, k, turned) for k in (0, 1)]
        k = 0 if found[0] is not None else 1
        scale, node = found[k], node.args[k]
        if scale is None:
            return None
    narrow = _cast_from(node)
    return None if narrow is None else _Weight(*narrow, turned, scale)


def _is_alone(node: Node, target: object) -> bool:
    return node.target is target and len(node.users) == 1


def _scale_of(node: Node, k: int, turned: bool) -> Node | None:
    """The other factor of a product of a weight, its argument ``k``, if it has one number for each
    column."""
    weight, scale = node.args[k], node.args[1 - k]
    if not isinstance(weight, Node) or not isinstance(scale, Node) or weight is scale:
        return None
    value, given = scale.meta["val"], weight.meta["val"]
    if value.dim() != 2 or value.dtype not in _FLOATS or value.device.type != "cpu":
        return None
    along, across = (1, 0) if turned else (0, 1)
    fits = value.shape[along] == 1 and value.shape[across] in (1, given.shape[across])
    return scale if fits and given.shape == node.meta["val"].shape else None


def _cast_from(node: Node) -> tuple[Node, str] | None:
    """What a node widens from 8 bits, and its kind, if that is all that it does and it has one
    user."""
    if _is_alone(node, own.from_float8.default):
        source, kind = node.args[:2]
    elif _is_alone(node, aten._to_copy.default):
        source, kind = node.args[0], "int8"
    else:
        return None
    value, given = node.meta.get("val"), source.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(given, torch.Tensor):
        return None
    stored = torch.int8 if kind == "int8" else torch.uint8
    fits = given.dtype == stored and value.dtype in _FLOATS and not is_empty(value)
    on_cpu = value.device.type == given.device.type == "cpu"
    return (source, kind) if fits and on_cpu else None
