"""Scripts that repeat what happens to one graph, without the program that it came from."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from torch_max_backend.compat.tracing import FakeTensor

# Constants with more elements are random numbers in the script.
_MOST = 64

_SCRIPT = '''\
"""Graph {number} ({kind}) of a program, alone: the max backend beside eager PyTorch.

torch {torch}, max {max}. {about}
"""

import torch
from torch import device, inf, nan  # noqa: F401

import torch_max_backend

# Operators from outside PyTorch need the import that registers them.


class Graph(torch.nn.Module):
    def __init__(self):
        super().__init__()
{constants}

{forward}


def arguments():
    torch.manual_seed(0)
    return [
{arguments}
    ]


def main():
    graph = Graph()
    with torch.no_grad():
        expected = graph(*arguments())
        options = {{"fallback": "error", "cache": False}}
        compiled = torch.compile(
            graph, backend=torch_max_backend.max_backend, dynamic={dynamic}, options=options
        )
        found = compiled(*arguments())
    for k, (ours, theirs) in enumerate(zip(found, expected)):
        torch.testing.assert_close(
            ours, theirs, equal_nan=True, msg=lambda m: f"result {{k}}: {{m}}"
        )
    print(f"{{len(expected)}} results agree with eager")


if __name__ == "__main__":
    main()
'''


def repro(
    function: Callable[..., Any],
    *args: Any,
    path: str | os.PathLike[str] = "repro.py",
    graph: int | None = None,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Path:
    """Write a script that compiles and runs one graph of a function or module, and compares it with
    eager. It holds the ATen graph; arguments and large constants are random numbers of the same
    dtypes, sizes and strides, so that no data leaves the machine.

    Args:
        function: A function or module, compiled or not; it is called once, in eager.
        *args: Its arguments.
        path: Where to write the script.
        graph: Its number, as ``explain`` counts; by default the first that MAX does not take whole,
            or 0.
        options: As for ``torch.compile(..., backend="max", options=...)``.
        dynamic: As for ``torch.compile``.
        **kwargs: Its keyword arguments.

    Raises:
        IndexError: There is no such graph.
    """
    from torch_max_backend.explanation import explain

    plans: list[Any] = []
    explain(function, *args, options=options, dynamic=dynamic, plans=plans, **kwargs)
    if graph is None:
        graph = next((k for k, (_, plan) in enumerate(plans) if plan.reasons), 0)
    if graph >= len(plans):
        raise IndexError(f"there are {len(plans)} graphs, counted from 0; none is {graph}")
    kind, plan = plans[graph]
    target = Path(path)
    target.write_text(script(plan.module, graph, kind, _about(plan)))
    return target


def _about(plan: Any) -> str:
    reasons = [f"{name}: {why}" for name, why in plan.reasons.items()]
    return "\n".join(["MAX refuses", *reasons]) if reasons else "MAX takes all of it."


def script(module: GraphModule, number: int, kind: str, about: str) -> str:
    """The text of the script for a graph."""
    from importlib.metadata import version

    from torch_max_backend.graph.trace import attribute

    values = [n.meta.get("val") for n in module.graph.nodes if n.op == "placeholder"]
    names = {str(n.target) for n in module.graph.nodes if n.op == "get_attr"}
    constants = [f"self.{name} = {_made(attribute(module, name))}" for name in sorted(names)]
    symbolic = any(isinstance(v, torch.SymInt) for v in values)
    forward = module.code.strip()
    return _SCRIPT.format(
        number=number,
        kind=kind,
        torch=torch.__version__,
        max=version("max"),
        about=about.replace('"""', "'''").replace("\\", "/"),
        constants=textwrap.indent("\n".join(constants) or "pass", " " * 8),
        forward=textwrap.indent(forward, " " * 4),
        arguments=textwrap.indent("\n".join(f"{_made(v)}," for v in values), " " * 8),
        dynamic=symbolic,
    )


def _made(value: Any) -> str:
    """Python code for a tensor like this one, or for a number."""
    from torch_max_backend.graph.shapes import hint

    if not isinstance(value, torch.Tensor):
        return repr(hint(value))
    shape = [int(hint(s)) for s in value.shape]
    stride = [int(hint(s)) for s in value.stride()]
    where = f"dtype={value.dtype}, device={str(value.device)!r}"
    known = not isinstance(value, FakeTensor)
    if known and value.numel() <= _MOST and not value.is_complex():
        return f"torch.tensor({value.tolist()}, {where}).reshape({shape})"
    empty = f"torch.empty_strided({shape}, {stride}, {where})"
    if value.dtype == torch.bool:
        return f"{empty}.copy_(torch.rand({shape}) < 0.5)"
    if value.is_floating_point() or value.is_complex():
        return f"{empty}.copy_(torch.randn({shape}))"
    return f"{empty}.zero_()"
