"""What ``torch.compile(model, backend="max")`` would do, before anything is compiled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from functorch.compile import make_boxed_func
from torch.fx import GraphModule

from torch_max_backend import backend
from torch_max_backend.compat.dynamo import output_graph
from torch_max_backend.explanation.one_operator import Check, check
from torch_max_backend.explanation.report import Break, Explanation, GraphReport, graph_report
from torch_max_backend.explanation.stages import Stage, readable, stages_of
from torch_max_backend.options import Options

__all__ = [
    "Break",
    "Check",
    "Explanation",
    "GraphReport",
    "Stage",
    "check",
    "explain",
    "explained",
    "original",
]

if TYPE_CHECKING:
    from torch_max_backend.driver.partitioned import Partitioned


def explain(
    function: Callable[..., Any],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    plans: list[tuple[str, Partitioned]] | None = None,
    **kwargs: Any,
) -> Explanation:
    """Call a function or module once in eager PyTorch and tell what the backend would make of it.

    Nothing is compiled; it takes the seconds that tracing takes. The call has its effects: state
    that the model keeps (statistics of batch norm, the generator) changes. Dynamo forgets what this
    process compiled before; artifacts on disk stay.

    Args:
        function: A function or module, compiled with ``torch.compile`` or not.
        *args: Its arguments.
        options: As for ``torch.compile(..., backend="max", options=...)``.
        dynamic: As for ``torch.compile``.
        plans: Is given the kind and the plan of each graph.
        **kwargs: Its keyword arguments.

    Raises:
        OptionError: An option is unknown or has a bad value.
    """
    Options.parse(None, options)
    plain = original(function)
    torch.compiler.reset()
    try:
        with explained(plans) as found:
            compiled = torch.compile(
                plain, backend=backend.max_backend, options=dict(options or {}), dynamic=dynamic
            )
            compiled(*args, **kwargs)
    finally:
        torch.compiler.reset()
    if isinstance(plain, torch.nn.Module):
        found.parameters = sum(p.numel() for p in plain.parameters())
        tensors = {t.data_ptr(): t for t in (*plain.parameters(), *plain.buffers())}
        found.parameter_bytes = sum(t.nbytes for t in tensors.values())
    return found


def original(function: Callable[..., Any]) -> Callable[..., Any]:
    """What ``torch.compile`` was given, of what it returned; anything else as it is."""
    module = getattr(function, "_orig_mod", None)
    if module is not None:
        return module
    return getattr(function, "_torchdynamo_orig_callable", function)


@contextmanager
def explained(plans: list[tuple[str, Partitioned]] | None = None) -> Iterator[Explanation]:
    """In the body, what the backend is asked to compile is explained and runs in eager PyTorch.

    Args:
        plans: Is given the kind and the plan of each graph.
    """
    found = Explanation()
    compile = backend.MaxBackend._compile

    def collected(
        self: backend.MaxBackend,
        module: GraphModule,
        example_inputs: Sequence[Any],
        options: Options,
    ) -> Callable[..., Any]:
        text = readable(module)
        found.add_stages(Stage(len(found.graphs), "dynamo", lambda: text))
        return backend.trace(
            module, example_inputs, options, _Collector(found, options, plans), False
        )

    known = len(output_graph.graph_break_reasons)
    backend.MaxBackend._compile = collected  # type: ignore[method-assign]
    try:
        yield found
    finally:
        backend.MaxBackend._compile = compile  # type: ignore[method-assign]
        for reason in output_graph.graph_break_reasons[known:]:
            frame = reason.user_stack[-1] if reason.user_stack else None
            where = f"{frame.filename}:{frame.lineno}: {frame.line}" if frame else ""
            found.breaks.append(Break(reason.reason, where))


class _Collector:
    """Takes graphs as a compiler does, and has them run by torch."""

    def __init__(
        self, found: Explanation, options: Options, plans: list[tuple[str, Partitioned]] | None
    ) -> None:
        self.found = found
        self.options = options
        self.plans = [] if plans is None else plans

    def inference(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        return self._take("inference", module, backend.static_arguments(), None)

    def forward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        backend.allow_second_backward()
        return self._take("forward", module, backend.static_arguments(), backend.returned())

    def backward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        return self._take("backward", module, (), None)

    def _take(
        self, kind: str, module: GraphModule, static: Collection[int], exact: int | None
    ) -> Any:
        from torch_max_backend.driver.autograd_cache import MaxOutputCode
        from torch_max_backend.driver.partitioned import Partitioned

        number, text = len(self.found.graphs), readable(module)
        plan = Partitioned(module, static, self.options, exact)
        plan.settle()
        self.found.add_stages(Stage(number, "aten", lambda: text), *stages_of(number, plan))
        self.plans.append((kind, plan))
        self.found.graphs.append(graph_report(kind, plan, exact))

        return MaxOutputCode.unstored(make_boxed_func(module.forward))
