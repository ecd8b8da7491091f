"""A graph of which MAX takes what it can, and torch the rest.

It is cut into parts for MAX and nodes for torch (``graph/split.py``). The parts are compiled as one
module; where something turns out not to convert, the graph is cut again, with more left to torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule, Node

from torch_max_backend import environment
from torch_max_backend.compat.dynamo import counters
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.driver.autotuned import Tuned, job_or_candidates
from torch_max_backend.driver.background import Background
from torch_max_backend.driver.job import Job
from torch_max_backend.driver.passes import PASSES, own_modes, run_passes
from torch_max_backend.driver.torch_runs import (
    COUNTERS,
    Guarded,
    Part,
    by_torch,
    copied,
    eager,
    fallback,
    report_once,
    tell_failed,
)
from torch_max_backend.driver.unit import CompiledGraph, Function
from torch_max_backend.errors import MaxBackendError, OptionError
from torch_max_backend.graph.capability import is_collective
from torch_max_backend.graph.nested import body, every_node
from torch_max_backend.graph.signature_schema import Signature
from torch_max_backend.graph.split import split, work
from torch_max_backend.options import Options

# Graphs, and parts of those that MAX does not take whole, with less work than this many operators
# stay with torch unless an option says otherwise: a call of MAX's costs as much as several of them.
LEAST_GRAPH, LEAST_PART = 2, 6
# Between collectives, which there is no graph without.
LEAST_BETWEEN_COLLECTIVES = 2
# Steps are called sooner than an operator of torch's.
LEAST_FOR_STEPS = 1


@dataclass(eq=False)
class Piece:
    """A graph that MAX takes.

    Attributes:
        module: The graph as torch can run it.
        static: Positions of arguments whose memory rarely changes.
        exact: That of ``strategies.start``.
        job: What compiles it.
    """

    module: GraphModule
    static: Collection[int]
    exact: int | None = None
    job: Job | Tuned | None = None


class Partitioned:
    """A graph of which MAX takes what it can. The arguments are those of ``strategies.start``.

    Attributes:
        module: The graph; nothing changes it.
        pieces: What MAX takes: all of it, or parts of it in order, or nothing.
        whole: What calls the parts and runs the rest, or ``None`` if nothing is in parts.
        reasons: Why torch runs a node, by its name.
        merged: Names of nodes that MAX would have taken, had there been more of them.
        failure: Why torch runs all of the graph, if something failed.
    """

    def __init__(
        self,
        module: GraphModule,
        static: Collection[int],
        options: Options,
        exact: int | None = None,
    ) -> None:
        self._static = static
        self._options = options
        self._exact = exact
        self.module = copied(module)
        self.pieces: list[Piece] = []
        self.whole: GraphModule | None = None
        self.reasons: dict[str, str] = {}
        self.merged: list[str] = []
        self.failure = ""
        with own_modes():
            try:
                whole = [p for p in PASSES if p.whole]
                self.module = run_passes(self.module, whole, options.skip_passes)
            except MaxBackendError as e:
                self._give_up(e)
                return
            for node in self.module.graph.nodes:
                node.meta["origin"] = node.name
            self._cut()

    def _cut(self) -> None:
        """Find what MAX takes; what it refuses is torch's, and the rest is cut again."""
        while True:
            self._cut_once()
            for piece in self.pieces:
                module = copied(piece.module)
                try:
                    job = job_or_candidates(module, piece.static, self._options, piece.exact)
                    job.chosen.partly = True
                    job.chosen.small = self._is_small(piece.module)
                    piece.job = job
                except OptionError:
                    raise  # the user's to mend; no node is to blame
                except MaxBackendError as e:
                    self._refuse(e, module)
                    break
            else:
                return

    def _cut_once(self) -> None:
        self.pieces, self.whole, self.merged = [], None, []
        if not self.reasons:
            if work(self.module) >= self._least() or _asked_for(self.module):
                self.pieces = [Piece(self.module, self._static, self._exact)]
            return
        found = split(self.module, self.reasons, self._least())
        self.whole, self.merged = found.whole, found.merged
        names = [n.name for n in self.module.graph.nodes if n.op == "placeholder"]
        static = {names[i] for i in self._static}
        for part in found.parts:
            part.module.meta["passes"] = self.module.meta["passes"]
            at = frozenset(i for i, name in enumerate(part.inputs) if name in static)
            self.pieces.append(Piece(part.module, at))

    def _least(self) -> int:
        """What the option ``min_ops`` is for this graph, or for the parts of one that is cut."""
        from torch_max_backend.engines.steps.planned import on_cpu

        if self._options.min_ops is not None:
            return self._options.min_ops
        if (self._options.engine or environment.engine()) != "max" and on_cpu(self.module):
            return LEAST_FOR_STEPS
        return self._least_for_max()

    def _is_small(self, module: GraphModule) -> bool:
        """Whether a piece is for steps or torch, not for MAX's engine."""
        if self._options.min_ops is not None or _asked_for(module):
            return False
        return work(module) < self._least_for_max()

    def _least_for_max(self) -> int:
        if not self.reasons:
            return LEAST_GRAPH
        apart = {n.target for n in self.module.graph.nodes if n.name in self.reasons}
        return LEAST_BETWEEN_COLLECTIVES if all(map(is_collective, apart)) else LEAST_PART

    def _refuse(self, error: MaxBackendError, module: GraphModule) -> None:
        """Leave to torch the nodes that an error names, or else all of the piece that it is of."""
        refused = {o: why for n, why in error.refused for o in _origins(module, n)}
        if self.reasons.keys() >= refused.keys():
            calls = (n for n in module.graph.nodes if n.op == "call_function")
            refused = {o: str(error) for n in calls for o in _origins(module, n)}
        self.reasons = {**refused, **self.reasons}

    def settle(self) -> None:
        """Leave to torch what has no step as well, where MAX is not to compile the whole piece;
        nothing is built."""
        with own_modes():
            while any(self._leave(piece) for piece in self.pieces):
                self._cut()

    def _leave(self, piece: Piece) -> bool:
        job = piece.job
        if not isinstance(job, Job) or job.engine == "max":
            return False
        try:
            job.plan()
        except MaxBackendError as e:
            if job.is_cut(e):
                self._refuse(e, job.trace.module)
                return True
        return False

    def _give_up(self, error: MaxBackendError) -> None:
        """Leave everything to torch."""
        self.pieces, self.whole = [], None
        self.failure = str(error)
        tell_failed(error, self._options)

    def graph(self, function: Function) -> CompiledGraph:
        """The graph, to be run by ``function``."""
        if self.pieces and self.whole is None:
            job = self.pieces[0].job
            assert job is not None
            return job.graph(function)
        arguments = sum(n.op == "placeholder" for n in self.module.graph.nodes)
        return CompiledGraph(function, "", Signature(arguments), {}, self._static)

    def in_background(self) -> Function:
        """The function; eager PyTorch runs until it is ready, unless it is ready at once."""
        self.settle()
        if not self.pieces:
            return self.functions()[0]
        job = self.pieces[0].job
        if self.whole is None and job is not None:
            self._count()
            return self._guarded(job.in_background(eager(self.module)), self.pieces[0])
        return Background(eager(self.module), lambda: self.functions()[0])

    def functions(self, *others: Partitioned) -> list[Function]:
        """The functions of this plan and others; what is to be compiled becomes one module."""
        plans = [self, *others]
        made: list[Function] = []
        while jobs := [p.job for plan in plans for p in plan.pieces if p.job is not None]:
            try:
                first: Any = jobs[0]  # what is beside it is of its kind
                made = first.functions(*jobs[1:])
                break
            except OptionError:
                raise
            except MaxBackendError as e:
                owners = [(plan, p) for plan in plans for p in plan.pieces if _is_of(e, p)]
                if not owners:
                    for plan in plans:
                        plan._give_up(e)
                for plan, piece in owners[:1]:
                    assert piece.job is not None
                    with own_modes():
                        plan._refuse(e, piece.job.chosen.trace.module)
                        plan._cut()
        each = iter(made)
        return [plan._function([next(each) for _ in plan.pieces]) for plan in plans]

    def _function(self, made: Sequence[Function]) -> Function:
        self._count()
        guarded = [self._guarded(f, p) for f, p in zip(made, self.pieces, strict=True)]
        if self.whole is None:
            return guarded[0] if guarded else by_torch(self.module, self._inductor)
        for k, function in enumerate(guarded):
            setattr(self.whole, f"part{k}", Part(function))
        if not self._inductor:
            return eager(self.whole)
        from torch_max_backend.driver.inductor_parts import between_parts

        return eager(between_parts(self.whole))

    @property
    def _inductor(self) -> bool:
        return fallback(self._options) == "inductor"

    def _guarded(self, function: Function, piece: Piece) -> Guarded:
        return Guarded(function, piece.module, self._inductor)

    def _count(self) -> None:
        """Tell torch's counters, and once of each operator whoever reads the log."""
        known = counters[COUNTERS]
        known["graphs"] += 1
        known["parts"] += len(self.pieces)
        known["operators"] += sum(work(p.module) for p in self.pieces)
        known["eager operators"] += work(self.module) - sum(work(p.module) for p in self.pieces)
        nodes = {n.name: n for n in self.module.graph.nodes}
        often = Counter(str(nodes[name].target) for name in self.reasons)
        for target, count in often.items():
            known[f"eager {target}"] += count
        for name, why in self.reasons.items():
            target = str(nodes[name].target)
            if is_collective(nodes[name].target):
                continue  # nobody expects them to be compiled
            report_once(nodes[name], often[target], why, self._inductor)


def _origins(module: GraphModule, node: Node) -> list[str]:
    """Names of the nodes of a plan's graph that a node of a piece was made of; of one inside a
    branch or loop, those that take it."""
    if node.graph is module.graph:
        return [node.meta["origin"]] if "origin" in node.meta else []
    found = []
    for outer in module.graph.nodes:
        inner = body(module, outer) if outer.op == "get_attr" else None
        if inner is not None and any(n.graph is node.graph for n in every_node(inner)):
            found += [user.meta["origin"] for user in outer.users if "origin" in user.meta]
    return found


def _is_of(error: MaxBackendError, piece: Piece) -> bool:
    """Whether an error names nodes of a piece."""
    graphs = {node.graph for node, _ in error.refused}
    return piece.job is not None and any(
        n.graph in graphs for n in every_node(piece.job.chosen.trace.module)
    )


def _asked_for(module: GraphModule) -> bool:
    """Whether a graph holds operators that somebody wrote a lowering for."""
    return any(
        isinstance(n.target, OpOverload) and n.target.namespace not in ("aten", "prims")
        for n in module.graph.nodes
    )
