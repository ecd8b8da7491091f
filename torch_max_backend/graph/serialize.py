"""FX arguments and metadata as text that is the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Node

from torch_max_backend.graph.shapes import Symbols, SymScalar


def text_of(value: Any, symbols: Symbols, name: Callable[[Node], str]) -> str:
    """An argument or a ``meta["val"]`` as text.

    Args:
        value: Nodes, tensors, numbers, symbolic numbers, and lists and dicts of them.
        symbols: Names of the graph's symbols.
        name: What to call a node.
    """
    if isinstance(value, Node):
        return name(value)
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(text_of(v, symbols, name) for v in value) + "]"
    if isinstance(value, dict):
        items = sorted(value.items())
        return "{" + ",".join(f"{k}:{text_of(v, symbols, name)}" for k, v in items) + "}"
    if isinstance(value, torch.Tensor):
        sizes = ",".join(symbols.text(s) for s in value.shape)
        strides = ",".join(symbols.text(s) for s in value.stride())
        return f"{value.dtype}({sizes};{strides};{value.device})"
    if isinstance(value, SymScalar):
        return f"{type(value).__name__}({symbols.text(value)})"
    return f"{type(value).__name__}:{value!r}"
