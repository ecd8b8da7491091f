"""What is known of graphs before they are compiled, as data and in words."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from torch_max_backend.compat.operators import OpOverload

if TYPE_CHECKING:
    from torch_max_backend.driver.job import Job
    from torch_max_backend.driver.partitioned import Partitioned, Piece
    from torch_max_backend.explanation.stages import Stage


# Why torch runs operators that MAX would take.
SMALL = "fewer operators than are worth a graph"


@dataclass
class Break:
    """Where Dynamo ends a graph.

    Attributes:
        reason: In Dynamo's words.
        where: ``file:line: code`` of the user's program.
    """

    reason: str
    where: str


@dataclass
class Operator:
    """An operator of a graph.

    Attributes:
        name: The ATen overload.
        count: How many nodes call it.
        place: "max" or "eager".
        reason: Why it is in eager.
        where: ``file:line: code`` of the first node, where torch recorded it.
    """

    name: str
    count: int
    place: str
    reason: str = ""
    where: str = ""


@dataclass
class PartReport:
    """A graph for MAX.

    Attributes:
        operators: How many it has, sizes and views left out.
        key: That of its artifact.
        cached: Whether the artifact is there.
        miss: Why it is not.
        inputs: Bytes of its arguments, as far as sizes are known.
        results: Bytes of its results.
        engine: "steps" or "max".
        steps: How many steps it has, with the steps engine.
        kept: By operator, why the steps engine cannot run it: MAX compiles the graph then.
    """

    operators: int
    key: str
    cached: bool
    miss: str
    inputs: int
    results: int
    engine: str = "max"
    steps: int = 0
    kept: dict[str, str] = field(default_factory=dict)


@dataclass
class GraphReport:
    """A functional ATen graph.

    Attributes:
        kind: "inference", "forward" or "backward".
        operators: What it calls after decomposition, the most frequent first.
        decomposed: Operators that were taken apart, with the number of nodes they became.
        parts: What MAX takes, in order; one part where it takes the whole.
        steps: The order in which parts and torch's operators run: ``part 0``, an operator, ...
        saved: Bytes that a forward graph keeps for backward.
        dynamic: Names of its symbolic sizes.
    """

    kind: str
    operators: list[Operator]
    decomposed: dict[str, int]
    parts: list[PartReport]
    steps: list[str]
    saved: int = 0
    dynamic: list[str] = field(default_factory=list)

    @property
    def lowered(self) -> int:
        """How many nodes MAX takes."""
        return sum(o.count for o in self.operators if o.place == "max")

    @property
    def eager(self) -> int:
        """How many nodes torch runs."""
        return sum(o.count for o in self.operators if o.place == "eager")


@dataclass
class Explanation:
    """What the backend would do; ``str()`` tells it in words.

    Attributes:
        graphs: In the order in which they were traced.
        breaks: Where Dynamo ended a graph.
        parameters: Elements of the module's parameters.
        parameter_bytes: Bytes of its parameters and buffers.
    """

    graphs: list[GraphReport] = field(default_factory=list)
    breaks: list[Break] = field(default_factory=list)
    parameters: int = 0
    parameter_bytes: int = 0

    def __post_init__(self) -> None:
        self._stages: list[Stage] = []

    def stages(self) -> list[Stage]:
        """The graphs at each stage, in order, each a text that can be printed: as Dynamo captured
        them, as ATen, cut into parts, after the passes, and what runs: a table of steps, or a
        module of MAX."""
        return list(self._stages)

    def add_stages(self, *stages: Stage) -> None:
        """Called while graphs are explained."""
        self._stages += stages

    @property
    def lowered(self) -> float:
        """The share of operators that MAX takes, from 0 to 1."""
        taken = sum(g.lowered for g in self.graphs)
        return taken / max(1, taken + sum(g.eager for g in self.graphs))

    @property
    def compiles(self) -> int:
        """How many modules would be compiled: one for a forward graph and its backward graph, none
        for what the cache holds or runs as steps."""
        count, joined = 0, False
        for g in self.graphs:
            missing = any(not p.cached and p.engine == "max" for p in g.parts)
            count += missing and not (g.kind == "backward" and joined)
            joined = g.kind == "forward" and missing
        return count

    def data(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {
            **dataclasses.asdict(self),
            "lowered": self.lowered,
            "compiles": self.compiles,
        }

    def json(self) -> str:
        """``data()`` as JSON."""
        return json.dumps(self.data(), indent=2)

    def text(self) -> str:
        """In words, for a terminal."""
        from torch_max_backend.explanation.text_report import text

        return text(self)

    def markdown(self) -> str:
        """In words and tables."""
        from torch_max_backend.explanation.text_report import markdown

        return markdown(self)

    def svg(self) -> str:
        """A picture of the graphs: what MAX takes, what torch runs, in order."""
        from torch_max_backend.explanation.svg_report import svg

        return svg(self)

    def __str__(self) -> str:
        return self.text()

    def _repr_svg_(self) -> str:
        return self.svg()


def graph_report(kind: str, plan: Partitioned, returned: int | None) -> GraphReport:
    """Report on a graph.

    Args:
        kind: That of the report.
        plan: How it was cut.
        returned: How many results of a forward graph are not only for its backward graph.
    """
    from torch_max_backend.graph.split import is_work

    nodes = [n for n in plan.module.graph.nodes if is_work(n)]
    output = next(n for n in reversed(plan.module.graph.nodes) if n.op == "output")
    kept = [] if returned is None else output.args[0][returned:]
    values = [n.meta.get("val") for n in plan.module.graph.nodes if n.op == "placeholder"]
    symbols = {str(s) for v in values for s in _sizes(v) if isinstance(s, torch.SymInt)}
    return GraphReport(
        kind,
        _operators(plan, nodes),
        _decomposed(nodes),
        [_part(p) for p in plan.pieces],
        _steps(plan),
        sum(_bytes(n) for n in kept if isinstance(n, Node) and n.op != "placeholder"),
        sorted(symbols),
    )


def _operators(plan: Partitioned, nodes: list[Node]) -> list[Operator]:
    from torch_max_backend.graph.describe import source_line

    merged = set(plan.merged)
    found: dict[tuple[str, str, str], Operator] = {}
    for node in nodes:
        reason = plan.reasons.get(node.name, "")
        if not reason and (node.name in merged or not plan.pieces):
            reason = plan.failure or SMALL
        place = "eager" if reason else "max"
        known = found.setdefault(
            (str(node.target), place, reason),
            Operator(str(node.target), 0, place, reason, source_line(node) or ""),
        )
        known.count += 1
    return sorted(found.values(), key=lambda o: (o.place == "max", -o.count, o.name))


def _decomposed(nodes: list[Node]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for node in nodes:
        origin = node.meta.get("original_aten")
        if isinstance(origin, OpOverload) and str(origin) != str(node.target):
            found[str(origin)] += 1
    return dict(found.most_common())


def _part(piece: Piece) -> PartReport:
    from torch_max_backend.cache import store
    from torch_max_backend.graph.split import is_work

    assert piece.job is not None
    job = piece.job.chosen
    nodes = list(piece.module.graph.nodes)
    cached = job.caching and store.has(job.entry)
    miss = ""
    if not cached:
        miss = store.why_missing(job.parts) if job.caching else "the cache is off"
    results = [n for n in nodes[-1].args[0] if isinstance(n, Node)]
    engine, steps, kept = engine_of(job)
    return PartReport(
        sum(map(is_work, nodes)),
        job.entry,
        cached,
        miss,
        sum(_bytes(n) for n in nodes if n.op == "placeholder"),
        sum(map(_bytes, results)),
        engine,
        steps,
        kept,
    )


def engine_of(job: Job) -> tuple[str, int, dict[str, str]]:
    """Who would run a graph, in how many steps, and why not as steps."""
    from torch_max_backend.driver.passes import own_modes
    from torch_max_backend.errors import MaxBackendError

    if job.engine == "max":
        return "max", 0, {}
    try:
        with own_modes():
            return "steps", len(job.plan().all_steps), {}
    except MaxBackendError as e:
        return "max", 0, {str(n.target): why for n, why in e.refused} or {"": str(e)}


def _steps(plan: Partitioned) -> list[str]:
    from torch_max_backend.graph.split import is_work

    if plan.whole is None:
        return ["part 0"] if plan.pieces else ["eager"]
    steps = []
    for node in plan.whole.graph.nodes:
        if node.op == "call_module":
            steps.append(f"part {str(node.target).removeprefix('part')}")
        elif is_work(node):
            steps.append(str(node.target))
    return steps


def _sizes(value: Any) -> list[Any]:
    return list(value.shape) if isinstance(value, torch.Tensor) else [value]


def _bytes(node: Node) -> int:
    """Of a tensor whose sizes are known, or have an example."""
    from torch_max_backend.graph.shapes import hint

    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        return 0
    count = value.element_size()
    for size in value.shape:
        count *= int(hint(size) or 0)
    return count
