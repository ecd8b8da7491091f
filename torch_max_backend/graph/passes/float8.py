"""Tensors of float8 as the bytes that they are, for which MAX has dtypes on no CPU.

Data movement moves bytes. Casts become operators of this package, between bytes and wider floats.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from torch_max_backend.compat.operators import OpOverload

aten = torch.ops.aten

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define("from_float8(Tensor self, str kind, ScalarType dtype) -> Tensor")
_library.define("to_float8(Tensor self, str kind) -> Tensor")

KINDS = {torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}
_DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
# What moves numbers and does not look at them.
_MOVING = frozenset(
    {
        "t", "transpose", "permute", "view", "reshape", "_unsafe_view", "slice", "select",
        "unsqueeze", "squeeze", "expand", "clone", "detach", "alias", "cat", "index_select",
        "unbind", "split", "split_with_sizes", "as_strided",
    }
)  # fmt: skip
_CASTS = (aten._to_copy.default, torch.ops.prims.convert_element_type.default)


def _from_float8(self: torch.Tensor, kind: str, dtype: torch.dtype) -> torch.Tensor:
    """The numbers that bytes stand for."""
    return self.view(_DTYPES[kind]).to(dtype)


def _to_float8(self: torch.Tensor, kind: str) -> torch.Tensor:
    """The bytes of numbers in float8."""
    return self.to(_DTYPES[kind]).view(torch.uint8)


_library.impl("from_float8", _from_float8, "CompositeExplicitAutograd")
_library.impl("to_float8", _to_float8, "CompositeExplicitAutograd")


def bytes_for_float8(module: GraphModule) -> None:
    """Take float8 tensors on CPU for bytes, if nothing but casts looks into them; a graph that
    returns one, or computes with it, stays as it is."""
    found = [node for node in module.graph.nodes if _kind_of(node.meta.get("val"))]
    if not found or not all(map(_movable, found)):
        return
    kinds = {node: _kind_of(node.meta["val"]) for node in found}
    for node in [n for n in module.graph.nodes if n.target in _CASTS]:
        source = node.args[0]
        given, kind = kinds.get(source, ""), kinds.get(node, "")
        if not (kind or given):
            continue
        if kind == given:
            node.target, node.args, node.kwargs = aten.clone.default, (source,), {}
        else:
            kinds[_replace_cast(module, node, given, kind)] = kind
    for node in module.graph.nodes:
        if _kind_of(node.meta.get("val")):
            node.meta["val"] = _as_bytes(node.meta["val"])
    module.graph.eliminate_dead_code()
    module.recompile()


def _replace_cast(module: GraphModule, node: Node, given: str, kind: str) -> Node:
    """Put operators of ours in the place of a cast from a kind of float8, to one, or both; returns
    the last."""
    value = node.meta["val"]
    source = node.args[0]
    with module.graph.inserting_before(node):
        if given:
            wide = torch.float32 if kind else value.dtype
            target = torch.ops.torch_max_backend.from_float8.default
            source = module.graph.call_function(target, (source, given, wide))
            source.meta = {**node.meta, "val": value.to(wide)}
        if kind:
            target = torch.ops.torch_max_backend.to_float8.default
            source = module.graph.call_function(target, (source, kind))
            source.meta = {**node.meta, "val": _as_bytes(value)}
    node.replace_all_uses_with(source)
    module.graph.erase_node(node)
    return source


def _movable(node: Node) -> bool:
    """Whether a node of float8 is made and used by what moves or casts it; a result is not."""
    value = node.meta["val"]
    values = value if isinstance(value, Sequence) else [value]
    if any(v.device.type != "cpu" or v.dtype not in KINDS for v in values):
        return False
    made = node.op == "placeholder" or _moves(node) or node.target in _CASTS
    return made and all(_moves(u) or u.target in _CASTS for u in node.users)


def _moves(node: Node) -> bool:
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, OpOverload) or node.target.namespace != "aten":
        return False
    return node.target._opname in _MOVING


def _kind_of(value: Any) -> str:
    """The kind of float8 of a tensor, or of several; "" of another dtype."""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(_kind_of, value)), "")
    return KINDS.get(value.dtype, "") if isinstance(value, torch.Tensor) else ""


def _as_bytes(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_bytes, value))
    return value.view(torch.uint8)
