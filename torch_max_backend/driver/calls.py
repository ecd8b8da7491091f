"""What Dynamo calls: a compiled graph by the shortest way, and eager PyTorch where it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from torch_max_backend.compat.autograd_function import shorter, transforms_active
from torch_max_backend.compat.autograd_wrappers import Within, innermost_fn, within
from torch_max_backend.compat.tensors import set_grad_enabled
from torch_max_backend.driver.torch_runs import take_over
from torch_max_backend.driver.unit import Function
from torch_max_backend.errors import ExecutionError, ForkError
from torch_max_backend.process import fork_fallback

_grad_enabled = torch.is_grad_enabled

_FAILURES = (ForkError, ExecutionError)


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
    ways = _Ways(innermost_fn(compiled), module)

    def run(*arguments: Any) -> Any:
        if ways.direct is not None:
            # As AOTAutograd does: views of arguments that need gradients are none of its results.
            was = _grad_enabled()
            if was:
                set_grad_enabled(False)
            try:
                return ways.direct([*arguments])
            except _FAILURES:
                ways.direct = None
            finally:
                if was:
                    set_grad_enabled(True)
        elif ways.apply is not None and _grad_enabled() and not transforms_active():
            try:
                return ways.apply(*arguments)
            except _FAILURES:
                ways.apply = None
        return ways.ordinary(arguments)

    return run


class _Ways:
    """The ways to call a graph.

    Attributes:
        direct: The compiled graph itself, for calls without gradients, once that is known to do.
        apply: Its autograd function, the same for calls with gradients outside `torch.func`.
    """

    def __init__(self, compiled: Callable[..., Any], module: GraphModule | None) -> None:
        self.direct: Function | None = None
        self.apply: Callable[..., Any] | None = None
        self._compiled = compiled
        self._module = module
        self._known = self._failed = False
        self._found: Within | None = None

    def ordinary(self, arguments: tuple[Any, ...]) -> Any:
        """A call through all that AOTAutograd has wrapped around the graph, or in eager."""
        if not self._failed:
            try:
                results = self._compiled(*arguments)
            except _FAILURES as e:
                if self._module is None:
                    raise
                if isinstance(e, ForkError):
                    fork_fallback.tell(e)
                else:
                    take_over(e, False)
                    self._failed = True
            else:
                self._shorten()
                return results
        assert self._module is not None, "errors without a module are raised"
        return self._module(*arguments)

    def _shorten(self) -> None:
        """Look for a shorter way, after a call by the ordinary one."""
        if not self._known:
            self._known = True
            found = within(self._compiled)
            if found is not None and found.differentiated:
                self.apply = found.instead(shorter(found.graph, _FAILURES) or found.graph)
            else:
                self._found = found
        elif self._found is not None:
            direct = getattr(self._found.graph, "direct", None)
            self.direct = None if direct is None else self._found.instead(direct)
