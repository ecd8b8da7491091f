"""Functional ATen graphs as AOTAutograd hands them to the backend, without compiling anything."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule


def traced(
    function: Callable[..., Any], *arguments: Any, dynamic: bool | None = False
) -> GraphModule:
    """The one graph that ``torch.compile`` captures of a call, decomposed by the package's table.

    Args:
        function: A function or module.
        arguments: What it is called with.
        dynamic: As ``torch.compile`` takes it.
    """
    graphs = traced_all(function, *arguments, dynamic=dynamic)
    assert len(graphs) == 1, f"{len(graphs)} graphs instead of one"
    return graphs[0]


def traced_all(
    function: Callable[..., Any], *arguments: Any, dynamic: bool | None = False
) -> list[GraphModule]:
    """All graphs of a call, forward ones first; those that torch compiles lazily are left out."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    import torch_max_backend.ops  # noqa: F401
    from torch_max_backend.graph.decompositions.table import decomposition_table
    from torch_max_backend.graph.dispatch_override import whole

    graphs: list[GraphModule] = []

    def keep(module: GraphModule, example_inputs: Any) -> Any:
        graphs.append(module)
        return make_boxed_func(module.forward)

    backend = aot_autograd(
        fw_compiler=keep,
        inference_compiler=keep,
        decompositions=decomposition_table(),
        keep_inference_input_mutations=True,
    )
    torch._dynamo.reset()
    uncached = torch._functorch.config.patch(enable_autograd_cache=False)
    with warnings.catch_warnings(), uncached, whole():
        warnings.simplefilter("ignore")
        torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)(*arguments)
    return graphs
