"""Higher-order operators that are not control flow, written out.

``invoke_subgraph`` (``torch.compiler.nested_compile_region``) is its body: equal bodies become one
MAX subgraph again (``graph/repeated_subgraphs.py``). A short ``map`` or ``scan`` is one body a
step, found equal in the same way; one over many steps, or over a length that is not known, is a
loop.
``flex_attention`` is what torch defines it to be: a dense attention with the modification between
its products. ``auto_functionalized`` is the functional counterpart of the operator that it wraps
(``registry/functional_counterparts.py``). So are torch's chunked ``linear_cross_entropy``
operators, which are Python code, though of no higher order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch.func import functionalize
from torch.fx import GraphModule, Interpreter
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.traceback import preserve_node_meta

from torch_max_backend.compat.decompositions import sdpa_dense, sdpa_dense_backward
from torch_max_backend.compat.operators import CustomOpDef
from torch_max_backend.compat.tracing import detect_fake_mode
from torch_max_backend.graph.decompositions.table import decomposition_table
from torch_max_backend.graph.nested import every_node
from torch_max_backend.registry import functional_counterparts

higher = torch.ops.higher_order

# Steps of a ``map`` or ``scan`` that are written out one by one.
_MOST_STEPS = 32


def _invoke_subgraph(subgraph: GraphModule, identifier: str | None, *operands: Any) -> Any:
    return _run(subgraph, *operands)


def _map(f: GraphModule, xs: Sequence[Any], rest: Sequence[Any], **_: Any) -> list[Any]:
    if _is_long(xs):
        return _looped(f, [], xs, rest)
    steps = [_run(f, *(x[i] for x in xs), *rest) for i in range(len(xs[0]))]
    return [None if s[0] is None else torch.stack(s) for s in zip(*steps, strict=True)]


def _scan(
    f: GraphModule, init: Sequence[Any], xs: Sequence[Any], rest: Sequence[Any], **_: Any
) -> list[Any]:
    if _is_long(xs):
        return _looped(f, init, xs, rest)
    carried, steps = list(init), []
    for i in range(len(xs[0])):
        results = list(_run(f, *carried, *(x[i] for x in xs), *rest))
        carried = results[: len(carried)]
        steps.append(results[len(carried) :])
    return [*carried, *(torch.stack(s) for s in zip(*steps, strict=True))]


def _is_long(xs: Sequence[Any]) -> bool:
    steps = xs[0].shape[0]
    return not isinstance(steps, int) or steps > _MOST_STEPS


def _looped(
    f: GraphModule, init: Sequence[Any], xs: Sequence[Any], rest: Sequence[Any]
) -> list[Any]:
    """``scan`` as a ``while_loop``, which carries the number of the step, what the steps carry, and
    the stacked results, of which each step writes a row."""
    steps, carries = xs[0].shape[0], len(init)
    # Not part of what is traced: only the sizes of its results are used.
    first = list(_run(f, *init, *(x[0] for x in xs), *rest))[carries:]
    stacked = [None if y is None else y.new_zeros((steps, *y.shape)) for y in first]
    made = [y for y in stacked if y is not None]
    limit = torch.full((), steps, dtype=torch.int64, device=xs[0].device)

    def condition(i: Any, *values: Any) -> Any:
        return i < values[carries + len(made)]

    def body(i: Any, *values: Any) -> tuple[Any, ...]:
        carried, filled = values[:carries], values[carries : carries + len(made)]
        fixed, row = values[carries + len(made) + 1 :], i.reshape(1)
        given = [x.index_select(0, row).squeeze(0) for x in fixed[: len(xs)]]
        results = list(_run(f, *carried, *given, *fixed[len(xs) :]))
        written = [y for y in results[carries:] if y is not None]
        return (
            i + 1,
            # A loop must not hand on the very tensor that it was given.
            *(c.clone() for c in results[:carries]),
            *(
                out.index_copy(0, row, y.unsqueeze(0))
                for out, y in zip(filled, written, strict=True)
            ),
        )

    start = torch.zeros((), dtype=torch.int64, device=xs[0].device)
    found = higher.while_loop(condition, body, (start, *init, *made), (limit, *xs, *rest))
    results = iter(found[1 + carries :])
    return [
        *found[1 : 1 + carries],
        *(None if y is None else next(results) for y in stacked),
    ]


_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    higher.invoke_subgraph: _invoke_subgraph,
    higher.map_impl: _map,
    higher.scan: _scan,
    higher.flex_attention: sdpa_dense,
    higher.flex_attention_backward: sdpa_dense_backward,
    **functional_counterparts.WRAPPERS,
}
# Torch's operators whose kernel is Python code, where torch has them.
if find_spec("torch.nn.modules.linear_cross_entropy"):
    for _operator in vars(import_module("torch.nn.modules.linear_cross_entropy")).values():
        if isinstance(_operator, CustomOpDef):
            _WRITTEN_OUT[_operator._opoverload] = _operator._init_fn

_STEPS = {higher.map_impl: 1, higher.scan: 2}


def _can_be(node: torch.fx.Node) -> bool:
    """Whether a ``map`` or ``scan`` is over something, and what an operator that writes to its
    arguments does is known."""
    if node.target in functional_counterparts.WRAPPERS:
        return functional_counterparts.is_known(node)
    return node.target not in _STEPS or bool(node.args[_STEPS[node.target]])


class _Inliner(Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_function(_WRITTEN_OUT.get(target, target), args, kwargs)


def _run(module: GraphModule, *arguments: Any) -> Any:
    with preserve_node_meta():
        return _Inliner(module).run(*arguments)


def inlined(module: GraphModule) -> GraphModule:
    """The graph with such operators written out; the very module where there are none."""
    found = [n for n in every_node(module) if n.target in _WRITTEN_OUT]
    if not found or not all(map(_can_be, found)):
        return module
    given = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    mode = detect_fake_mode(given)
    allowed, mode.allow_non_fake_inputs = mode.allow_non_fake_inputs, True
    try:
        with mode:
            # Calls of one subgraph share fake outputs; tracing tells inputs apart by object.
            arguments = [v.detach() if isinstance(v, torch.Tensor) else v for v in given]
            # Torch's definition of flex_attention writes to what it allocates.
            function = functionalize(lambda *a: _run(module, *a), remove="mutations")
            written = make_fx(function, decomposition_table())(*arguments)
    finally:
        mode.allow_non_fake_inputs = allowed
    written.graph.eliminate_dead_code()
    return written
