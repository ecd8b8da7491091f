"""The cache key: everything that decides what the compiled artifact is, and never weights.

Computed from the FX graph, so that a warm start builds no MAX graph.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import Node

from torch_max_backend.cache.fit import cache_key as cache_key
from torch_max_backend.cache.fit import digest, environment_components
from torch_max_backend.compile.kernels import source_digest
from torch_max_backend.convert.registry import registry
from torch_max_backend.graph.nested import every_node
from torch_max_backend.graph.signature import Trace
from torch_max_backend.graph.text import text_of

_PACKAGE = Path(__file__).resolve().parents[1]


def components(trace: Trace) -> dict[str, str]:
    """What the key of a trace is made of, by name."""
    return {
        "bank": trace.signature.bank,
        "graph": digest(graph_text(trace)),
        "signature": digest(json.dumps(dataclasses.asdict(trace.signature), sort_keys=True)),
        "lowerings": lowerings_digest(trace),
        **environment_components(),
    }


def lowerings_digest(trace: Trace) -> str:
    """Digest of the lowerings from outside this package that the graph uses."""
    parts = []
    targets = {n.target for n in every_node(trace.module) if isinstance(n.target, OpOverload)}
    for op in sorted(targets & registry.keys(), key=str):
        lowering = registry[op]
        file = inspect.getsourcefile(lowering.function)
        if file is None or not Path(file).resolve().is_relative_to(_PACKAGE):
            parts.append(f"{op} {lowering.native16} {function_digest(lowering.function)}")
        if isinstance(lowering.kernels, Path):
            parts += [source_digest(lowering.kernels), function_digest(lowering.function)]
    return digest("\n".join(parts))


def function_digest(function: Callable[..., Any]) -> str:
    """Digest of a function's module source, byte code, defaults and closure."""
    digest = hashlib.sha256()
    file = inspect.getsourcefile(function)
    if file is not None and Path(file).is_file():
        digest.update(Path(file).read_bytes())
    _add(digest, function, set())
    return digest.hexdigest()


def _add(digest: Any, value: Any, seen: set[int]) -> None:
    """Feed a function or a value that it holds, in a form that is the same in each process."""
    if inspect.isfunction(value):
        if id(value) in seen:
            return
        seen.add(id(value))
        held = inspect.getclosurevars(value).nonlocals
        for part in (value.__qualname__, value.__code__, value.__defaults__):
            _add(digest, part, seen)
        for named in (value.__kwdefaults__ or {}, held):
            _add(digest, tuple(sorted(named.items())), seen)
    elif inspect.iscode(value):
        _add(digest, (value.co_code, value.co_names, value.co_varnames, value.co_consts), seen)
    elif isinstance(value, (tuple, list)):
        digest.update(f"{type(value).__name__} {len(value)}:".encode())
        for item in value:
            _add(digest, item, seen)
    elif isinstance(value, frozenset):
        _add(digest, sorted(map(repr, value)), seen)  # iterates differently in each process
    else:
        digest.update(f"{value!r};".encode())


def graph_text(trace: Trace) -> str:
    """The graph with nodes numbered in order: targets, arguments, metadata, small constants."""
    number: dict[Node, int] = {}
    lines = []
    for i, node in enumerate(every_node(trace.module)):
        number[node] = i
        target = "" if node.op == "placeholder" else str(node.target)
        parts = [
            node.op,
            target,
            *(
                text_of(value, trace.symbols, lambda n: f"%{number[n]}")
                for value in (node.args, node.kwargs, node.meta.get("val"))
            ),
        ]
        if node in trace.embedded:
            tensor = trace.embedded[node].detach().cpu().contiguous()
            parts.append(tensor.reshape(-1).view(torch.uint8).numpy().tobytes().hex())
        lines.append(" ".join(parts))
    return "\n".join(lines)
