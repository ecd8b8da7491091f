"""What MAX cannot take runs in eager PyTorch, and is told of.

A ``Plan`` stands where a ``Job`` of the pipeline does. It cuts a graph into parts for MAX and nodes
for torch (``graph/split.py``), compiles the parts as one module, and cuts again, with more left to
torch, where something turns out not to convert.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.eval_frame import innermost_fn
from torch._dynamo.utils import counters
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from torch_max_backend import environment
from torch_max_backend.errors import (
    ExecutionError,
    ForkError,
    IndexOutOfBoundsError,
    LinearAlgebraError,
    MaxBackendError,
)
from torch_max_backend.graph.nested import body, every_node
from torch_max_backend.log import get_logger
from torch_max_backend.options import Options
from torch_max_backend.pipeline import CompiledGraph, Function, Job, own_modes
from torch_max_backend.pipeline import start as start_job

log = get_logger("fallback")

# The group of ours among torch._dynamo.utils.counters.
COUNTERS = "max_backend"

# Graphs, and parts of those that MAX does not take whole, with less work than this many operators
# stay with torch unless an option says otherwise: there is nothing to fuse, or not enough to pay
# for one more call.
LEAST_GRAPH, LEAST_PART = 2, 6

# Operators that were told of.
_told: set[str] = set()


def falls_back(options: Options) -> bool:
    """Whether eager PyTorch takes what MAX does not; else an error says what that is."""
    return (options.fallback or environment.fallback()) == "eager"


def start(
    module: GraphModule, static: Collection[int], options: Options, exact: int | None = None
) -> Plan | Job:
    """``pipeline.start``, or the plan of a graph if what MAX refuses may run in eager PyTorch."""
    make = Plan if falls_back(options) else start_job
    return make(module, static, options, exact)


def compile_graph(module: GraphModule, static: Collection[int], options: Options) -> CompiledGraph:
    """``pipeline.compile_graph``, or a graph that may run in eager PyTorch in part."""
    from torch_max_backend.pipeline import compile_graph

    if not falls_back(options):
        return compile_graph(module, static, options)
    plan = Plan(module, static, options)
    return plan.graph(plan.in_background() if options.background else plan.functions()[0])


@dataclass(eq=False)
class Piece:
    """A graph that MAX takes.

    Attributes:
        module: The graph as torch can run it.
        static: Positions of arguments whose memory rarely changes.
        exact: That of ``pipeline.start``.
        job: What compiles it.
    """

    module: GraphModule
    static: Collection[int]
    exact: int | None = None
    job: Job | None = None


class Plan:
    """A graph of which MAX takes what it can. The arguments are those of ``pipeline.start``.

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
        from torch_max_backend.graph.effects import inline_effects
        from torch_max_backend.graph.fold import fold_constants
        from torch_max_backend.graph.inline import inlined

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
                self.module = inlined(self.module)
                inline_effects(self.module)
                fold_constants(self.module)
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
                    piece.job = start_job(module, piece.static, self._options, piece.exact)
                except MaxBackendError as e:
                    self._refuse(e, module)
                    break
            else:
                return

    def _cut_once(self) -> None:
        from torch_max_backend.graph.split import split, work

        least = self._options.min_ops
        self.pieces, self.whole, self.merged = [], None, []
        if not self.reasons:
            if work(self.module) >= (LEAST_GRAPH if least is None else least) or _asked_for(
                self.module
            ):
                self.pieces = [Piece(self.module, self._static, self._exact)]
            return
        found = split(self.module, self.reasons, LEAST_PART if least is None else least)
        self.whole, self.merged = found.whole, found.merged
        names = [n.name for n in self.module.graph.nodes if n.op == "placeholder"]
        static = {names[i] for i in self._static}
        for part in found.parts:
            at = frozenset(i for i, name in enumerate(part.inputs) if name in static)
            self.pieces.append(Piece(part.module, at))

    def _refuse(self, error: MaxBackendError, module: GraphModule) -> None:
        """Leave to torch the nodes that an error names, or else all of the piece that it is of."""
        refused = {o: why for n, why in error.refused for o in _origins(module, n)}
        if self.reasons.keys() >= refused.keys():
            calls = (n for n in module.graph.nodes if n.op == "call_function")
            refused = {o: str(error) for n in calls for o in _origins(module, n)}
        self.reasons = {**refused, **self.reasons}

    def _give_up(self, error: MaxBackendError) -> None:
        """Leave everything to torch."""
        self.pieces, self.whole = [], None
        self.failure = str(error)
        left_to_eager(error)

    # What the pipeline asks of a job

    def graph(self, function: Function) -> CompiledGraph:
        """The graph, to be run by ``function``."""
        from torch_max_backend.graph.signature import Signature

        if self.pieces and self.whole is None:
            job = self.pieces[0].job
            assert job is not None
            return job.graph(function)
        arguments = sum(n.op == "placeholder" for n in self.module.graph.nodes)
        return CompiledGraph(function, "", Signature(arguments), {}, self._static)

    def in_background(self) -> Function:
        """The function; eager PyTorch serves until it is ready, unless it can be had at once."""
        from torch_max_backend.compile.background import Background

        if not self.pieces:
            return self.functions()[0]
        job = self.pieces[0].job
        if self.whole is None and job is not None:
            self._count()
            return _Guarded(job.in_background(_eager(self.module)), self.pieces[0])
        return Background(_eager(self.module), lambda: self.functions()[0])

    def functions(self, *others: Plan) -> list[Function]:
        """The functions of this plan and others; what is to be compiled becomes one module."""
        plans = [self, *others]
        made: list[Function] = []
        while jobs := [p.job for plan in plans for p in plan.pieces if p.job is not None]:
            try:
                made = jobs[0].functions(*jobs[1:])
                break
            except MaxBackendError as e:
                owners = [(plan, p) for plan in plans for p in plan.pieces if _is_of(e, p)]
                if not owners:
                    for plan in plans:
                        plan._give_up(e)
                for plan, piece in owners[:1]:
                    assert piece.job is not None
                    with own_modes():
                        plan._refuse(e, piece.job.trace.module)
                        plan._cut()
        each = iter(made)
        return [plan._function([next(each) for _ in plan.pieces]) for plan in plans]

    def _function(self, made: Sequence[Function]) -> Function:
        self._count()
        guarded = [_Guarded(f, p) for f, p in zip(made, self.pieces, strict=True)]
        if self.whole is None:
            return guarded[0] if guarded else _eager(self.module)
        for k, function in enumerate(guarded):
            setattr(self.whole, f"part{k}", _Part(function))
        return _eager(self.whole)

    def _count(self) -> None:
        """Tell torch's counters, and once of each operator whoever reads the log."""
        from torch_max_backend.graph.split import work

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
            if target not in _told:
                _told.add(target)
                log.warning("%s", told(nodes[name], often[target], why))


def left_to_eager(error: MaxBackendError) -> None:
    """Tell that a whole graph runs in eager PyTorch."""
    counters[COUNTERS]["failed graphs"] += 1
    if isinstance(error, ForkError):
        _in_fork(error)
    else:
        log.warning("A graph runs in eager PyTorch: %s", error)


_told_of_fork = False


def _in_fork(error: ForkError) -> None:
    """Tell once that eager PyTorch runs everything in this process, and let it."""
    global _told_of_fork
    if not _told_of_fork:
        _told_of_fork = True
        # The threads of GNU's OpenMP are not here either, and torch would wait for them.
        torch.set_num_threads(1)
        log.warning("Graphs run in eager PyTorch, on one thread: %s", error)


def or_eager(compiled: Callable[..., Any], module: GraphModule) -> Callable[..., Any]:
    """A compiled Dynamo graph which eager PyTorch runs in forked children."""
    # Dynamo wraps what it is given once more.
    compiled = innermost_fn(compiled)

    def run(*arguments: Any) -> Any:
        try:
            return compiled(*arguments)
        except ForkError as e:
            _in_fork(e)
            return module(*arguments)

    return run


def eager_in_fork(error: ForkError, module: GraphModule) -> Callable[..., Any]:
    """A Dynamo graph as eager PyTorch runs it in a forked child."""

    def run(*arguments: Any) -> Any:
        # Not before the call: Dynamo lets nobody change the number of threads while it traces.
        _in_fork(error)
        return module(*arguments)

    return run


def told(node: Node, count: int, why: str) -> str:
    """That torch runs an operator, why, and where it is."""
    from torch_max_backend.convert.describe import describe_call, where

    times = f" ({count} times)" if count > 1 else ""
    return f"Runs in eager PyTorch: {describe_call(node)}{times}: {why}\n{where(node)}"


class _Guarded:
    """A compiled piece that torch takes over if MAX fails while it runs."""

    def __init__(self, function: Function, piece: Piece) -> None:
        # An attribute of the instance: AOTAutograd's wrappers copy __dict__ to learn of it.
        self._boxed_call = True
        self._serve = function
        self._piece = piece

    def __call__(self, arguments: list[Any]) -> list[Any]:
        try:
            return self._serve(arguments)
        except (IndexOutOfBoundsError, LinearAlgebraError):
            raise  # as eager does
        except ForkError as e:
            _in_fork(e)
            self._serve = _eager(self._piece.module)
            return self._serve(arguments)
        except ExecutionError as e:
            assert self._piece.job is not None
            if any(i.mutated for i in self._piece.job.trace.signature.inputs):
                raise  # some may be written already
            counters[COUNTERS]["failed runs"] += 1
            log.warning("A graph runs in eager PyTorch from now on: %s", e)
            self._serve = _eager(self._piece.module)
            return self._serve(arguments)


class _Part(nn.Module):
    """A compiled part, as the whole graph calls it."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Sequence[Any]:
        return self.function(list(arguments))


def _eager(module: GraphModule) -> Function:
    def run(*arguments: Any) -> list[Any]:
        return list(module.forward(*arguments))

    return make_boxed_func(run)


def copied(module: GraphModule) -> GraphModule:
    """The graph once more, with nodes of the same names; the tensors are the same."""
    made = GraphModule(module, copy.deepcopy(module.graph))
    made.meta = dict(module.meta)
    return made


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
        n.graph in graphs for n in every_node(piece.job.trace.module)
    )


def _asked_for(module: GraphModule) -> bool:
    """Whether a graph holds operators that somebody wrote a lowering for."""
    return any(
        isinstance(n.target, OpOverload) and n.target.namespace not in ("aten", "prims")
        for n in module.graph.nodes
    )


__all__ = ["COUNTERS", "Plan", "compile_graph", "eager_in_fork", "falls_back", "or_eager", "start"]
