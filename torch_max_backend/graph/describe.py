"""FX nodes in words, for errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node
from torch.fx.graph import dtype_abbrs

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in .*)?$')

# How Dynamo names a module: the variable that holds the model, then the children's names.
_ROOT = re.compile(r"^L\['\w+'\]")
_CHILD = re.compile(r"\._modules\['([^']+)'\]")


def describe_value(value: Any) -> str:
    """A tensor as ``f32[2, 3]``, anything else as Python writes it."""
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(str(s) for s in value.shape)
        return f"{dtype_abbrs.get(value.dtype, value.dtype)}[{sizes}]"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(describe_value(v) for v in value) + "]"
    return str(value)


def _argument(value: Any) -> str:
    if isinstance(value, Node):
        return describe_value(value.meta.get("val", value.name))
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_argument(v) for v in value) + "]"
    return repr(value) if isinstance(value, str) else str(value)


def describe_call(node: Node) -> str:
    """The node's operator with the shapes and dtypes of its arguments."""
    kwargs: Mapping[str, Any] = node.kwargs
    arguments = [_argument(a) for a in node.args]
    arguments += [f"{k}={_argument(v)}" for k, v in kwargs.items()]
    return f"{node.target}({', '.join(arguments)})"


def source_line(node: Node) -> str | None:
    """``file:line: code`` of the user's line that made the node, as torch recorded it."""
    trace = node.meta.get("stack_trace") or ""
    found = None
    lines = trace.splitlines()
    for i, line in enumerate(lines):
        match = _FRAME.match(line)
        if match:
            code = lines[i + 1].strip() if i + 1 < len(lines) else ""
            found = f"{match['file']}:{match['line']}: {code}".rstrip(": ")
    return found


def module_of(node: Node) -> str | None:
    """The module whose forward made the node, as ``layers.0 (Linear)``, where torch recorded it."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return None
    path, kind = stack[-1]
    path = _ROOT.sub("", _CHILD.sub(r".\1", path)).lstrip(".")
    name = getattr(kind, "__name__", str(kind).rpartition(".")[2])
    return f"{path} ({name})" if path else name


def where(node: Node) -> str:
    """The sentence that places a node: the user's source line; in code of torch, as a
    ``nn.Sequential`` that is compiled itself, the module and the name in the graph."""
    line = source_line(node)
    if line:
        return f"  at {line}"
    module = module_of(node)
    inside = f" of module {module}" if module else ""
    return f"  at graph node {node.name!r}{inside} (no source line recorded)"
