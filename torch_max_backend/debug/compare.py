"""Where the compiled graphs depart from eager PyTorch, node by node."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from torch_max_backend import backend
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.tracing import pytree
from torch_max_backend.explanation import original
from torch_max_backend.log import several
from torch_max_backend.options import Options


@dataclass
class NodeError:
    """How far a node's value is from the truth, which is eager's in float64.

    Attributes:
        node: Its name in the traced graph.
        operator: What it calls.
        where: ``file:line: code`` of the user's program, where torch recorded it.
        error: Largest absolute difference from the truth.
        eager: That of eager PyTorch, in the dtype of the graph.
        size: The largest absolute value of the truth.
    """

    node: str
    operator: str
    where: str
    error: float
    eager: float
    size: float

    def __str__(self) -> str:
        text = (
            f"{self.node} = {self.operator}: {self.error:.2g} from float64, "
            f"eager {self.eager:.2g}, values up to {self.size:.2g}"
        )
        return f"{text}\n  at {self.where}" if self.where else text


@dataclass
class GraphComparison:
    """A graph beside eager.

    Attributes:
        kind: "inference", "forward" or "backward".
        nodes: How many nodes were compared.
        departed: Nodes that are further from the truth than eager allows, in order.
        worst: The node with the largest error beside its size.
        results: Whether the graph as it is compiled for use returns what eager does. Where no node
            departs and this is false, it is what MAX fuses that departs.
    """

    kind: str
    nodes: int
    departed: list[NodeError]
    worst: NodeError | None
    results: bool


@dataclass
class Comparison:
    """What ``compare`` found; ``str()`` tells it in words."""

    graphs: list[GraphComparison] = field(default_factory=list)

    @property
    def first(self) -> NodeError | None:
        """The first node that departs from eager, or ``None``."""
        return next((g.departed[0] for g in self.graphs if g.departed), None)

    @property
    def agrees(self) -> bool:
        """Whether all graphs return what eager does, and no node departs."""
        return all(g.results and not g.departed for g in self.graphs)

    def __str__(self) -> str:
        lines = []
        for k, g in enumerate(self.graphs):
            state = "agrees" if g.results else "departs"
            lines.append(f"Graph {k} ({g.kind}): {state}, {several(g.nodes, 'node')} compared")
            if g.departed:
                lines.append(f"First of {len(g.departed)} that depart: {g.departed[0]}")
            elif g.worst is not None:
                lines.append(f"Largest error: {g.worst}")
        return "\n".join(lines)


def compare(
    function: Callable[..., Any],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    dynamic: bool | None = None,
    backward: bool = False,
    slack: float = 10.0,
    **kwargs: Any,
) -> Comparison:
    """Run a function or module once, and compare every node of its graphs with eager PyTorch.

    Each graph is compiled twice, in one module: as it is, and with every node's value as a result.
    All of these are kept for a call, three times; choose a small batch. Random numbers are those
    that MAX draws. The call has its effects on the model's state.

    Args:
        function: A function or module, compiled or not.
        *args: Its arguments.
        options: As for ``torch.compile(..., backend="max", options=...)``.
        dynamic: As for ``torch.compile``.
        backward: Call ``.backward()`` of the sum of the result's tensors that have a gradient.
        slack: How many times eager's distance from float64 a node's may be, over the tolerance of
            ``torch.testing.assert_close`` for its dtype.
        **kwargs: Its keyword arguments.
    """
    parsed = Options.parse(None, options)
    plain = original(function)
    found = Comparison()

    def compile(module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return backend.trace(
            module, example_inputs, parsed, _Comparing(found, parsed, slack), False
        )

    torch.compiler.reset()
    try:
        result = torch.compile(plain, backend=compile, dynamic=dynamic)(*args, **kwargs)
        if backward:
            tensors = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor)]
            sum(t.sum() for t in tensors if t.requires_grad).backward()
    finally:
        torch.compiler.reset()
    return found


class _Comparing:
    def __init__(self, found: Comparison, options: Options, slack: float) -> None:
        self.found = found
        self.options = options
        self.slack = slack

    def inference(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        return self._compared("inference", module, backend.static_arguments())

    def forward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        backend.allow_second_backward()
        return self._compared("forward", module, backend.static_arguments())

    def backward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        return self._compared("backward", module, ())

    def _compared(self, kind: str, module: GraphModule, static: Collection[int]) -> Any:
        from torch_max_backend.driver.autograd_cache import MaxOutputCode
        from torch_max_backend.driver.partitioned import Partitioned
        from torch_max_backend.driver.torch_runs import copied

        plain = copied(module)
        shown, names = _instrumented(copied(module))
        plans = [Partitioned(graph, static, self.options) for graph in (plain, shown)]
        served, traced = plans[0].functions(plans[1])

        def run(arguments: list[Any]) -> list[Any]:
            given = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
            ours = dict(zip(names, traced([*given]), strict=True))
            drawn = {n.name for n in plain.graph.nodes if _draws(n)}
            drawn |= {u.name for n in plain.graph.nodes if n.name in drawn for u in n.users}
            known = {name: ours[name] for name in drawn if name in ours}
            values = _values(plain, arguments, known, wide=False)
            truth = _values(plain, arguments, known, wide=True)
            results = served(arguments)
            self._report(kind, plain, names, ours, values, truth, results)
            return results

        run._boxed_call = True  # type: ignore[attr-defined]
        return MaxOutputCode.unstored(run)

    def _report(
        self,
        kind: str,
        module: GraphModule,
        names: Sequence[str],
        ours: Mapping[str, Any],
        values: Mapping[str, Any],
        truth: Mapping[str, Any],
        results: Sequence[Any],
    ) -> None:
        from torch_max_backend.graph.describe import source_line

        nodes = {n.name: n for n in module.graph.nodes}
        departed, measured = [], []
        for name in names:
            error, eager, size = _errors(ours[name], values[name], truth[name])
            node = nodes[name]
            told = NodeError(name, str(node.target), source_line(node) or "", error, eager, size)
            measured.append(told)
            if _departs(ours[name], values[name], error, eager, size, self.slack):
                departed.append(told)
        random = any(map(_draws, nodes.values()))
        output = next(n for n in reversed(module.graph.nodes) if n.op == "output")
        agree = random or all(
            _departs_not(result, item, values, truth, self.slack)
            for result, item in zip(results, output.args[0], strict=True)
        )
        worst = max(measured, key=lambda e: e.error / (e.size or 1.0), default=None)
        self.found.graphs.append(GraphComparison(kind, len(names), departed, worst, agree))


def _instrumented(module: GraphModule) -> tuple[GraphModule, list[str]]:
    """The graph with the value of every node that computes a tensor as its results."""
    output = next(n for n in reversed(module.graph.nodes) if n.op == "output")
    found = [
        n
        for n in module.graph.nodes
        if n.op == "call_function"
        and isinstance(n.meta.get("val"), Tensor)
        and n.target is not torch.ops.aten.copy_.default
    ]
    for node in list(module.graph.nodes):
        if node.target is torch.ops.aten.copy_.default:
            node.replace_all_uses_with(node.args[1])
            module.graph.erase_node(node)
    output.args = (tuple(found),)
    module.recompile()
    return module, [n.name for n in found]


def _draws(node: Node) -> bool:
    return (
        isinstance(node.target, OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
    )


def _values(
    module: GraphModule, arguments: Sequence[Any], known: Mapping[str, Any], wide: bool
) -> dict[str, Any]:
    """The value of each node by name, in eager PyTorch.

    Args:
        module: The graph.
        arguments: Its arguments; nothing is written to them.
        known: Values to be taken as they are.
        wide: Compute in float64.
    """
    found: dict[str, Any] = {}

    class Recorder(Interpreter):
        def run_node(self, n: Node) -> Any:
            value = known[n.name] if n.name in known else super().run_node(n)
            if wide:
                value = pytree.tree_map(_widened, value)
            found[n.name] = value
            return value

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if wide:
                args, kwargs = pytree.tree_map(_wide_dtype, (args, kwargs))
            return super().call_function(target, args, kwargs)

    given = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
    with torch.no_grad():
        Recorder(module).run(*given)
    return found


def _widened(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.to(_wide_dtype(value.dtype))


def _wide_dtype(value: Any) -> Any:
    if not isinstance(value, torch.dtype):
        return value
    if value.is_complex:
        return torch.complex128
    return torch.float64 if value.is_floating_point else value


def _errors(ours: Tensor, theirs: Tensor, truth: Tensor) -> tuple[float, float, float]:
    """Largest distances from the truth, and its largest value; NaN where both are is no error."""
    if truth.numel() == 0:
        return 0.0, 0.0, 0.0
    wide = _widened(truth) if truth.is_floating_point() or truth.is_complex() else truth.double()

    def distance(value: Tensor) -> float:
        value = value.to(wide.dtype)
        same = (value == wide) | (value.isnan() & wide.isnan())
        return torch.where(same, 0.0, (value - wide).abs()).nan_to_num(torch.inf).max().item()

    finite = wide.abs()[wide.isfinite()]
    return distance(ours), distance(theirs), finite.max().item() if finite.numel() else 0.0


def _departs(
    ours: Tensor, theirs: Tensor, error: float, eager: float, size: float, slack: float
) -> bool:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return True
    try:
        torch.testing.assert_close(ours, theirs, equal_nan=True)
    except AssertionError:
        return (
            error > slack * eager + torch.finfo(ours.dtype).eps * size if _inexact(ours) else True
        )
    return False


def _inexact(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _departs_not(
    result: Any, item: Any, values: Mapping[str, Any], truth: Mapping[str, Any], slack: float
) -> bool:
    """Whether a result of the graph as it is used agrees with eager's."""
    if not isinstance(item, Node) or not isinstance(result, Tensor):
        return True
    theirs, exact = values[item.name], truth[item.name]
    return not _departs(result, theirs, *_errors(result, theirs, exact), slack)
