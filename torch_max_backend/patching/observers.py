"""Whether anybody looks at what happens inside a module: hooks, or code of an nnsight trace.

A fused forward calls no module inside the one that it is for. Where somebody looks, the module's
own forward runs instead, so nothing is missed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from torch import nn

from torch_max_backend.compat import nnsight
from torch_max_backend.compat.hooks import any_for_all_modules

# The forwards that this package sets are methods of functions with this attribute.
PATCH = "_torch_max_backend_patch"


def hooked(module: nn.Module) -> bool:
    """Whether a call of a module does more than its class's forward: hooks, a forward of its own
    that is neither nnsight's nor of this package."""
    own: dict[str, Any] = module.__dict__
    if (
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
    ):
        return True
    forward = own.get("forward")
    if forward is None or is_ours(forward) or nnsight.is_controller(forward):
        return False
    return own_forward(module) is not type(module).forward


def own_forward(module: nn.Module) -> Callable[..., Any]:
    """What a module's forward is, as a function that takes the module. One that is pickled while it
    is patched comes back with its class's forward as its own."""
    own = module.__dict__.get("forward")
    if own is None:
        return type(module).forward
    if isinstance(own, MethodType) and own.__self__ is module:
        return own.__func__

    @functools.wraps(own)
    def forward(_: nn.Module, *args: Any, **kwargs: Any) -> Any:
        return own(*args, **kwargs)

    return forward


def is_ours(forward: Any) -> bool:
    """Whether a forward is one that ``patch`` has set."""
    return isinstance(forward, MethodType) and hasattr(forward.__func__, PATCH)


def inner(module: nn.Module) -> Iterator[nn.Module]:
    """The modules inside a module, those in two places twice."""
    for child in module._modules.values():
        if child is not None:
            yield child
            yield from inner(child)


def observed(module: nn.Module) -> bool:
    """Whether something inside a module is looked at in this call."""
    if any_for_all_modules() or any(map(hooked, inner(module))):
        return True
    trace = nnsight.tracing(module)
    return trace is not None and nnsight.waits_inside(trace)
