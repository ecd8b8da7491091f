"""Arguments of FX nodes by their ATen schema: which symbolic numbers are sizes, which are data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.fx import Node

from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.graph.shapes import Symbols, SymScalar


def wants_size(schema_type: Any) -> bool:
    """Whether a schema argument type takes a symbolic int as a size (SymInt, int, lists of them)
    rather than as data (Tensor, Scalar, float)."""
    while True:
        kind = schema_type.kind()
        if kind in ("OptionalType", "ListType"):
            schema_type = schema_type.getElementType()
            continue
        return kind in ("IntType", "SymIntType", "BoolType", "SymBoolType")


def schema_arguments(node: Node) -> Iterator[tuple[str, Any, Any]]:
    """``(name, type, value)`` of each given argument of an operator node."""
    assert isinstance(node.target, OpOverload)
    schema = node.target._schema.arguments
    positional = [a for a in schema if not a.kwarg_only]
    for argument, value in zip(positional, node.args, strict=False):
        yield argument.name, argument.real_type, value
    types = {a.name: a.real_type for a in schema}
    for name, value in node.kwargs.items():
        yield name, types[name], value


def scalar_dtype(value: Any) -> str:
    """The dtype of the 0-d tensor that carries a symbolic number as data."""
    if isinstance(value, torch.SymFloat):
        return "float64"
    return "bool" if isinstance(value, torch.SymBool) else "int64"


def per_dimension(values: Sequence[Any], count: int) -> list[Any]:
    """A setting for each of ``count`` dimensions, where ATen takes one for all."""
    return list(values) * count if len(values) == 1 else list(values)


def scalar_uses(nodes: Iterable[Node], symbols: Symbols) -> list[tuple[str, str]]:
    """The ``(expression, dtype)`` of the symbolic numbers that operators use as data."""
    found: dict[tuple[str, str], None] = {}
    for node in nodes:
        if node.target is torch.ops.higher_order.cond:
            choice = node.args[0].meta.get("val") if isinstance(node.args[0], Node) else None
            if isinstance(choice, SymScalar):
                found.setdefault((symbols.text(choice), scalar_dtype(choice)))
        if node.op == "call_function" and isinstance(node.target, OpOverload):
            for _, kind, value in schema_arguments(node):
                if wants_size(kind):
                    continue
                for item in value if isinstance(value, (list, tuple)) else [value]:
                    number = item.meta.get("val") if isinstance(item, Node) else None
                    if isinstance(number, SymScalar) and not symbols.from_data(number):
                        found.setdefault((symbols.text(number), scalar_dtype(number)))
    return list(found)


def sizes(nodes: Iterable[Node]) -> Iterator[torch.SymInt]:
    """The symbolic numbers that become MAX dims: sizes of tensors and arguments that are sizes."""
    for node in nodes:
        for value in _flat(node.meta.get("val")):
            if isinstance(value, torch.Tensor):
                yield from (s for s in value.shape if isinstance(s, torch.SymInt))
        if node.op == "call_function" and isinstance(node.target, OpOverload):
            for _, kind, value in schema_arguments(node):
                if wants_size(kind):
                    for item in _flat(value):
                        number = item.meta.get("val") if isinstance(item, Node) else None
                        if isinstance(number, torch.SymInt):
                            yield number


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [v for item in value for v in _flat(item)]
    return [value]
