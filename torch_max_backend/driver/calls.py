"""What Dynamo calls: a compiled graph by the shortest way, and eager PyTorch where it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.eval_frame import innermost_fn
from torch.fx import GraphModule

from torch_max_backend.compat.autograd_wrappers import within
from torch_max_backend.driver.torch_runs import take_over
from torch_max_backend.errors import ExecutionError, ForkError
from torch_max_backend.process import fork_fallback

_grad_enabled = torch.is_grad_enabled
_set_grad_enabled = torch._C._set_grad_enabled


def called(compiled: Callable[..., Any], module: GraphModule | None) -> Callable[..., Any]:
    """A compiled Dynamo graph as Dynamo calls it.

    From its second call on, what AOTAutograd has wrapped around the graph is left out if it does
    nothing for it (``compat.autograd_wrappers``).

    Args:
        compiled: What AOTAutograd made.
        module: The graph, which eager PyTorch runs in forked children, and once MAX has failed
            while it ran a graph of which nothing but the artifact was at hand; ``None`` if errors
            are to be raised.
    """
    # Dynamo wraps what it is given once more.
    compiled = innermost_fn(compiled)
    graph: Any = None
    direct: Callable[[list[Any]], list[Any]] | None = None
    apply: Callable[..., Any] | None = None
    known = failed = False

    def run(*arguments: Any) -> Any:
        nonlocal direct, apply
        if direct is not None:
            # As AOTAutograd does: views of arguments that need gradients are none of its results.
            was = _grad_enabled()
            if was:
                _set_grad_enabled(False)
            try:
                return direct([*arguments])
            except (ForkError, ExecutionError):
                direct = None
            finally:
                if was:
                    _set_grad_enabled(True)
        elif apply is not None and _grad_enabled():
            try:
                return apply(*arguments)
            except (ForkError, ExecutionError):
                apply = None
        return ordinary(arguments)

    def ordinary(arguments: tuple[Any, ...]) -> Any:
        nonlocal failed
        if not failed:
            try:
                results = compiled(*arguments)
            except ForkError as e:
                if module is None:
                    raise
                fork_fallback.tell(e)
            except ExecutionError as e:
                if module is None:
                    raise
                take_over(e, False)
                failed = True
            else:
                shorten()
                return results
        return module(*arguments) if module is not None else compiled(*arguments)

    def shorten() -> None:
        """Look for a shorter way, after a call by the ordinary one."""
        nonlocal graph, direct, apply, known
        if not known:
            known = True
            found = within(compiled)
            if found is not None and found.differentiated:
                apply = found.graph
            elif found is not None:
                graph = found.graph
        elif graph is not None:
            direct = getattr(graph, "direct", None)

    return run
