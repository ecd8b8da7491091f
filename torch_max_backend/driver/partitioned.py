"""What MAX cannot take runs in eager PyTorch, or compiled by inductor, and is told of.

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

from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.eval_frame import innermost_fn
from torch._dynamo.utils import counters
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.fx._lazy_graph_module import _LazyGraphModule

from torch_max_backend import environment
from torch_max_backend.driver.direct import CompiledGraph, Function, Job, own_modes
from torch_max_backend.driver.direct import start as start_job
from torch_max_backend.errors import (
    ExecutionError,
    ForkError,
    IndexOutOfBoundsError,
    LinearAlgebraError,
    MaxBackendError,
    OptionError,
)
from torch_max_backend.graph.nested import body, every_node
from torch_max_backend.log import get_logger
from torch_max_backend.options import Options
from torch_max_backend.process import fork_fallback

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
    """Whether torch takes what MAX does not; else an error says what that is."""
    return _fallback(options) != "error"


def _fallback(options: Options) -> str:
    return options.fallback or environment.fallback()


def start(
    module: GraphModule, static: Collection[int], options: Options, exact: int | None = None
) -> Plan | Job:
    """``pipeline.start``, or the plan of a graph if torch may run what MAX refuses."""
    make = Plan if falls_back(options) else start_job
    return make(module, static, options, exact)


def compile_graph(module: GraphModule, static: Collection[int], options: Options) -> CompiledGraph:
    """``pipeline.compile_graph``, or a graph that torch may run in part."""
    from torch_max_backend.driver.direct import compile_graph

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
        from torch_max_backend.graph.passes.constant_folding import fold_constants
        from torch_max_backend.graph.passes.effect_tokens import inline_effects
        from torch_max_backend.graph.passes.inline_higher_order import inlined

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
                    piece.job.partly = True
                except OptionError:
                    raise  # the user's to mend; no node is to blame
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
        _tell_failed(error, self._options)

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
        from torch_max_backend.driver.background import Background

        self.settle()
        if not self.pieces:
            return self.functions()[0]
        job = self.pieces[0].job
        if self.whole is None and job is not None:
            self._count()
            return self._guarded(job.in_background(_eager(self.module)), self.pieces[0])
        return Background(_eager(self.module), lambda: self.functions()[0])

    def functions(self, *others: Plan) -> list[Function]:
        """The functions of this plan and others; what is to be compiled becomes one module."""
        plans = [self, *others]
        made: list[Function] = []
        while jobs := [p.job for plan in plans for p in plan.pieces if p.job is not None]:
            try:
                made = jobs[0].functions(*jobs[1:])
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
                        plan._refuse(e, piece.job.trace.module)
                        plan._cut()
        each = iter(made)
        return [plan._function([next(each) for _ in plan.pieces]) for plan in plans]

    def _function(self, made: Sequence[Function]) -> Function:
        self._count()
        guarded = [self._guarded(f, p) for f, p in zip(made, self.pieces, strict=True)]
        if self.whole is None:
            return guarded[0] if guarded else by_torch(self.module, self._inductor)
        for k, function in enumerate(guarded):
            setattr(self.whole, f"part{k}", _Part(function))
        if not self._inductor:
            return _eager(self.whole)
        from torch_max_backend.driver.inductor_parts import between_parts

        return _eager(between_parts(self.whole))

    @property
    def _inductor(self) -> bool:
        return _fallback(self._options) == "inductor"

    def _guarded(self, function: Function, piece: Piece) -> _Guarded:
        return _Guarded(function, piece, self._inductor)

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
                log.warning("%s", told(nodes[name], often[target], why, self._inductor))


def left_to_torch(
    module: GraphModule, example_inputs: Sequence[Any], error: MaxBackendError, options: Options
) -> Callable[..., Any]:
    """What runs a Dynamo graph of which nothing can be had from MAX."""
    _tell_failed(error, options)
    if _fallback(options) != "inductor":
        return module
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(module, list(example_inputs))


def _tell_failed(error: MaxBackendError, options: Options) -> None:
    counters[COUNTERS]["failed graphs"] += 1
    if isinstance(error, ForkError):
        fork_fallback.tell(error)
    else:
        log.warning("A graph runs in %s: %s", _name(_fallback(options) == "inductor"), error)


def told(node: Node, count: int, why: str, inductor: bool = False) -> str:
    """That torch runs an operator, why, and where it is."""
    from torch_max_backend.graph.describe import describe_call, where

    times = f" ({count} times)" if count > 1 else ""
    return f"Runs in {_name(inductor)}: {describe_call(node)}{times}: {why}\n{where(node)}"


def _name(inductor: bool) -> str:
    return "inductor" if inductor else "eager PyTorch"


class _Guarded:
    """A compiled piece that torch takes over if MAX fails while it runs."""

    def __init__(self, function: Function, piece: Piece, inductor: bool) -> None:
        # An attribute of the instance: AOTAutograd's wrappers copy __dict__ to learn of it.
        self._boxed_call = True
        self._serve = function
        self._piece = piece
        self._inductor = inductor

    def __call__(self, arguments: list[Any]) -> list[Any]:
        try:
            return self._serve(arguments)
        except ForkError as e:
            fork_fallback.tell(e)
            self._serve = _eager(self._piece.module)
        except ExecutionError as e:
            _take_over(e, self._inductor)
            self._serve = by_torch(self._piece.module, self._inductor)
        return self._serve(arguments)


def or_eager(compiled: Callable[..., Any], module: GraphModule) -> Callable[..., Any]:
    """A compiled Dynamo graph which eager PyTorch runs in forked children, and once MAX has failed
    while it ran a graph of which nothing but the artifact was at hand."""
    # Dynamo wraps what it is given once more.
    compiled = innermost_fn(compiled)
    failed = False

    def run(*arguments: Any) -> Any:
        nonlocal failed
        if not failed:
            try:
                return compiled(*arguments)
            except ForkError as e:
                fork_fallback.tell(e)
            except ExecutionError as e:
                _take_over(e, False)
                failed = True
        return module(*arguments)

    return run


def _take_over(error: ExecutionError, inductor: bool) -> None:
    """Tell that torch runs a graph that failed; raise if it must not."""
    # The first two are eager's errors as well.
    if isinstance(error, (IndexOutOfBoundsError, LinearAlgebraError)) or error.wrote:
        raise error
    counters[COUNTERS]["failed runs"] += 1
    log.warning("A graph runs in %s from now on: %s", _name(inductor), error)


class _Part(nn.Module):
    """A compiled part, as the whole graph calls it."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Sequence[Any]:
        return self.function(list(arguments))


def by_torch(module: GraphModule, inductor: bool) -> Function:
    """The function of a graph that MAX takes nothing of."""
    if not inductor:
        return _eager(module)
    from torch_max_backend.driver.inductor_parts import Compiled

    return _eager(Compiled(module))


def _eager(module: nn.Module) -> Function:
    def run(*arguments: Any) -> list[Any]:
        return list(module.forward(*arguments))

    return make_boxed_func(run)


def copied(module: GraphModule) -> GraphModule:
    """The graph once more, with nodes of the same names; the tensors are the same."""
    # Its code is written once somebody runs it, which is where torch takes over.
    made = _LazyGraphModule(module, copy.deepcopy(module.graph))
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


__all__ = ["COUNTERS", "Plan", "compile_graph", "falls_back", "start"]
