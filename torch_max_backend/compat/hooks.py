"""Hooks that Dynamo does not see.

Dynamo looks at the hooks of a module when it traces it and, by default (2.11 to 2.15), never again:
one that is registered later inside a compiled model does not run, and nothing says so. Here, a
warning does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from weakref import WeakSet

from torch import nn

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._dynamo import config, symbolic_convert
    from torch.nn.modules import module as module_calls

_METHODS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)

# The modules of compiled models.
_compiled: WeakSet[nn.Module] = WeakSet()


def watch(warn: Callable[[type], None]) -> None:
    """Called while Dynamo compiles a frame: from now on, hooks on the modules that the frame calls
    are warned of.

    Args:
        warn: Is given the class of a module that a hook was registered on too late.
    """
    translator = getattr(getattr(symbolic_convert, "tls", None), "current_tx", None)
    output = getattr(translator, "output", None)
    if output is None:
        return
    for module in _called_by(output.root_tx):
        _compiled.update(module.modules())
    _install(warn)


def _called_by(frame: Any) -> Iterator[nn.Module]:
    """The modules that are arguments, variables around or globals of a function."""
    named = {n: frame.f_globals.get(n) for n in frame.f_code.co_names}
    for value in (*frame.f_locals.values(), *named.values()):
        value = getattr(value, "cell_contents", value)
        if isinstance(value, nn.Module):
            yield value


@cache
def _install(warn: Callable[[type], None]) -> None:
    for name in _METHODS:
        register = getattr(nn.Module, name)

        @functools.wraps(register)
        def watched(self: Any, *args: Any, _register: Any = register, **kwargs: Any) -> Any:
            handle = _register(self, *args, **kwargs)
            if self in _compiled and config.skip_nnmodule_hook_guards:
                warn(type(self))
            return handle

        setattr(nn.Module, name, watched)


def any_for_all_modules() -> bool:
    """Whether hooks are registered that every module calls."""
    return bool(
        module_calls._global_forward_hooks
        or module_calls._global_forward_pre_hooks
        or module_calls._global_backward_hooks
        or module_calls._global_backward_pre_hooks
    )


__all__ = ["any_for_all_modules", "watch"]
