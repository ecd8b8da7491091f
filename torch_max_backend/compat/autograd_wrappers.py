"""What AOTAutograd (2.15) wraps around a compiled graph, where that does nothing for it.

Fifteen functions of Python lie between what Dynamo calls and the compiled graph: they write
mutations back, make aliases anew, look for profilers. For a graph without any of that they only
pass arguments and results on, in 2 us, or 15 with cold caches. What is not known here, in another
version of torch or of a graph that needs more, is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._C import _DisableAutocast as _AutocastOff
    from torch._dynamo.eval_frame import innermost_fn

# All names in the code that AOTAutograd writes for a graph of which nothing is left to do but to
# call it without gradients, or with them.
_PLAIN = {"torch", "_C", "is_grad_enabled", "_set_grad_enabled"}
_PLAIN |= {"isinstance", "tuple", "list", "len", "AssertionError"}
_NO_AUTOCAST = {"_DisableAutocast_"}
# That results have sizes which the graph does not fix, for the next graph that Dynamo compiles.
_MARK, _DIMS = "_mark_dynamic_", "_dyn_dims_"
_DIFFERENTIATED = {"_is_view_replay_enabled", "_set_view_replay_enabled", "enable_grad"}


@dataclass(frozen=True)
class Within:
    """What AOTAutograd's wrappers call.

    Attributes:
        graph: The compiled inference graph, which takes a list, for calls without gradients; or
            ``apply`` of the autograd function of a graph for training, which takes arguments.
        differentiated: Whether it is the second.
        autocast_off: Whether autocast is to be off while the first is called.
        dynamic: Dims of results that are to be marked, by the number of the result.
        mark: How: of a result and its dims.
    """

    graph: Callable[..., Any]
    differentiated: bool
    autocast_off: bool
    dynamic: Mapping[int, set[int]]
    mark: Callable[[Any, set[int]], None] | None

    def instead(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """What to call where ``call`` is what ``graph`` does, with all that is left to do."""
        if self.autocast_off and not self.differentiated:
            call = without_autocast(call)
        return self._marking(call) if self.mark is not None and self.dynamic else call

    def _marking(self, call: Callable[..., Any]) -> Callable[..., Any]:
        mark, dynamic = self.mark, list(self.dynamic.items())
        assert mark is not None, "checked by the caller"

        def run(*arguments: Any) -> Any:
            results = call(*arguments)
            for i, dims in dynamic:
                mark(results[i], dims)
            return results

        return run


def without_autocast(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one argument that is called while autocast is off: a graph that was traced
    under autocast has its conversions in it already."""

    def run(argument: Any) -> Any:
        with _AutocastOff():
            return call(argument)

    return run


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
    names = {name for name in code.co_names if not name.startswith(_DIMS)}
    known = names - _NO_AUTOCAST - {_MARK}
    values = wrapper["_codegen_runtime_wrapper"].__globals__
    dynamic = {
        int(name.removeprefix(_DIMS)): values[name]
        for name in code.co_names
        if name.startswith(_DIMS)
    }
    rest = bool(names & _NO_AUTOCAST), dynamic, values.get(_MARK)
    if known <= _PLAIN and "_set_grad_enabled" in known:
        return Within(graph, False, *rest)
    boxed = _variables(graph, "g")
    if known <= _PLAIN | _DIFFERENTIATED and "enable_grad" in known and boxed is not None:
        apply = boxed.get("f")
        return None if apply is None else Within(apply, True, *rest)
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


__all__ = ["Within", "innermost_fn", "within", "without_autocast"]
