"""What AOTAutograd (2.15) wraps around a compiled graph, where that does nothing for it.

Fifteen functions of Python lie between what Dynamo calls and the compiled graph: they write
mutations back, make aliases anew, look for profilers. For a graph without any of that they only
pass arguments and results on, in 2 us, or 15 with cold caches. What is not known here, in another
version of torch or of a graph that needs more, is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch._dynamo.eval_frame import innermost_fn

# All names in the code that AOTAutograd writes for a graph of which nothing is left to do but to
# call it without gradients, or with them.
_PLAIN = {"torch", "_C", "is_grad_enabled", "_set_grad_enabled"}
_PLAIN |= {"isinstance", "tuple", "list", "len", "AssertionError"}
_NO_AUTOCAST = {"_DisableAutocast_"}
_DIFFERENTIATED = {"_is_view_replay_enabled", "_set_view_replay_enabled", "enable_grad"}


@dataclass(frozen=True)
class Within:
    """What AOTAutograd's wrappers call.

    Attributes:
        graph: The compiled inference graph, which takes a list, for calls without gradients; or
            ``apply`` of the autograd function of a graph for training, which takes arguments.
        differentiated: Whether it is the second.
    """

    graph: Callable[..., Any]
    differentiated: bool


def within(compiled: Callable[..., Any]) -> Within | None:
    """What can be called instead of the result of ``aot_module_simplified``, after its first call;
    ``None`` if that does more than to call it."""
    outer = _variables(innermost_fn(compiled), "forward")
    if outer is None or len(outer.get("params_buffers_flat", [None])):
        return None
    wrapper = _variables(_stored(outer.get("compiled_fn")), "runtime_wrapper")
    if wrapper is None:
        return None
    graph = _stored(wrapper.get("_inner_compiled_fn"))
    code = getattr(wrapper.get("_codegen_runtime_wrapper"), "__code__", None)
    if graph is None or code is None:
        return None
    names = set(code.co_names)
    if names <= _PLAIN | _NO_AUTOCAST and "_set_grad_enabled" in names:
        return Within(graph, False)
    boxed = _variables(graph, "g")
    if names <= _PLAIN | _DIFFERENTIATED and "enable_grad" in names and boxed is not None:
        apply = boxed.get("f")
        return None if apply is None else Within(apply, True)
    return None


def _stored(function: Any) -> Any:
    """What the cache keeps has a function around it, on one side or the other. Not told by its
    attribute, which the functions around that have as well."""
    stored = type(function).__name__ == "SerializableCompiledFunction"
    return function.compiled_fn if stored else function


def _variables(function: Any, name: str) -> dict[str, Any] | None:
    """The variables of functions around one of a given name that it uses."""
    if not isinstance(function, FunctionType) or function.__code__.co_name != name:
        return None
    cells = function.__closure__ or ()
    try:
        return dict(
            zip(function.__code__.co_freevars, (c.cell_contents for c in cells), strict=True)
        )
    except ValueError:  # a variable that has no value yet
        return None


__all__ = ["Within", "innermost_fn", "within"]
