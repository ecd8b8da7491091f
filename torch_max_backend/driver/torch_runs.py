"""What torch runs instead of MAX: parts of a graph, all of it, or what failed while it ran."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import GraphModule, Node

from torch_max_backend import environment
from torch_max_backend.compat.dynamo import counters
from torch_max_backend.compat.tracing import LazyGraphModule
from torch_max_backend.driver.unit import Function
from torch_max_backend.errors import (
    ExecutionError,
    ForkError,
    IndexOutOfBoundsError,
    LinearAlgebraError,
    MaxBackendError,
)
from torch_max_backend.graph.describe import describe_call, where
from torch_max_backend.graph.layout import memory_order
from torch_max_backend.log import get_logger
from torch_max_backend.options import Options
from torch_max_backend.process import fork_fallback

aten = torch.ops.aten

log = get_logger("fallback")

# The group of ours among torch._dynamo.utils.counters.
COUNTERS = "max_backend"

# Operators that were reported.
_told: set[str] = set()


def falls_back(options: Options) -> bool:
    """Whether torch takes what MAX does not; else an error says what that is."""
    return fallback(options) != "error"


def fallback(options: Options) -> str:
    """Who takes what MAX does not: ``"eager"``, ``"inductor"``, or ``"error"`` for nobody."""
    return options.fallback or environment.fallback()


def left_to_torch(
    module: GraphModule, example_inputs: Sequence[Any], error: MaxBackendError, options: Options
) -> Callable[..., Any]:
    """What runs a Dynamo graph of which MAX can compile nothing."""
    tell_failed(error, options)
    if fallback(options) != "inductor":
        return module
    from torch_max_backend.compat.inductor import compile_fx

    return compile_fx(module, list(example_inputs))


def tell_failed(error: MaxBackendError, options: Options) -> None:
    """Count a graph that torch runs whole, and log why."""
    counters[COUNTERS]["failed graphs"] += 1
    if isinstance(error, ForkError):
        fork_fallback.tell(error)
    else:
        log.warning("A graph runs in %s: %s", _name(fallback(options) == "inductor"), error)


def report_once(node: Node, count: int, why: str, inductor: bool) -> None:
    """Log, once for each operator, that torch runs it."""
    target = str(node.target)
    if target not in _told:
        _told.add(target)
        log.warning("%s", message(node, count, why, inductor))


def message(node: Node, count: int, why: str, inductor: bool = False) -> str:
    """That torch runs an operator, why, and where it is."""
    times = f" ({count} times)" if count > 1 else ""
    return f"Runs in {_name(inductor)}: {describe_call(node)}{times}: {why}\n{where(node)}"


def _name(inductor: bool) -> str:
    return "inductor" if inductor else "eager PyTorch"


class Guarded:
    """A compiled graph that torch takes over if it fails while it runs.

    Args:
        function: The compiled graph.
        module: The graph as torch can run it.
        inductor: Whether torch compiles it then.
    """

    def __init__(self, function: Function, module: GraphModule, inductor: bool) -> None:
        # An attribute of the instance: AOTAutograd's wrappers copy __dict__ to learn of it.
        self._boxed_call = True
        self._serve = function
        self._module = module
        self._inductor = inductor

    @property
    def direct(self) -> Function | None:
        return getattr(self._serve, "direct", None)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        try:
            return self._serve(arguments)
        except ForkError as e:
            fork_fallback.tell(e)
            self._serve = eager(self._module)
        except ExecutionError as e:
            take_over(e, self._inductor)
            self._serve = by_torch(self._module, self._inductor)
        return self._serve(arguments)


def take_over(error: ExecutionError, inductor: bool) -> None:
    """Tell that torch runs a graph that failed; raise if it must not."""
    # The first two are eager's errors as well.
    if isinstance(error, (IndexOutOfBoundsError, LinearAlgebraError)) or error.wrote:
        raise error
    counters[COUNTERS]["failed runs"] += 1
    log.warning("A graph runs in %s from now on: %s", _name(inductor), error)


class Part(nn.Module):
    """A compiled part, as the whole graph calls it."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Sequence[Any]:
        return self.function(list(arguments))


def by_torch(module: GraphModule, inductor: bool) -> Function:
    """The function of a graph that MAX takes nothing of."""
    if not inductor:
        return eager(module)
    from torch_max_backend.driver.inductor_parts import Compiled

    return eager(Compiled(module))


def eager(module: nn.Module) -> Function:
    """A module as the function that AOTAutograd calls."""
    if isinstance(module, GraphModule):
        module = _as_traced(module)

    def run(arguments: list[Any]) -> list[Any]:
        return list(module.forward(*arguments))

    made: Any = run
    made._boxed_call, made.direct = True, run
    return run


# Kernels of torch that lay out their first result otherwise than torch's tracing says.
_OTHERWISE = (
    aten._native_batch_norm_legit_functional.default,
    aten._native_batch_norm_legit.no_stats,
    aten._native_batch_norm_legit_no_training.default,
)
_VIEWS = (aten.view.default, aten._unsafe_view.default)


def _as_traced(module: GraphModule) -> GraphModule:
    """A graph whose tensors lie as torch's tracing said: the graph itself, or a copy.

    Where a kernel lays one out otherwise, eager PyTorch refuses the graph's views, and attention
    reads other memory.
    """
    if not _found(module, *_VIEWS, *_OTHERWISE):
        return module
    module = copied(module)
    for norm in _found(module, *_OTHERWISE):
        for item in [u for u in norm.users if u.args == (norm, 0)]:
            order = memory_order(item.meta["val"])
            with module.graph.inserting_after(item):
                laid = module.graph.call_function(_laid_out, (item, order))
            item.replace_all_uses_with(laid)
            laid.args = (item, order)
    for view in _found(module, *_VIEWS):
        view.target = aten.reshape.default
    return module


def _found(module: GraphModule, *targets: Any) -> list[Node]:
    find = module.graph.find_nodes
    return [n for target in targets for n in find(op="call_function", target=target)]


def _laid_out(x: torch.Tensor, order: Sequence[int] | None) -> torch.Tensor:
    """A tensor with its dims in this order in memory, ``None`` for their own."""
    if order is None:
        return x.contiguous()
    return x.permute(order).contiguous().permute([order.index(i) for i in range(len(order))])


def copied(module: GraphModule) -> GraphModule:
    """The graph once more, with nodes of the same names; the tensors are the same."""
    # Its code is written once somebody runs it, which is where torch takes over.
    made = LazyGraphModule(module, copy.deepcopy(module.graph))
    made.meta = dict(module.meta)
    return made
