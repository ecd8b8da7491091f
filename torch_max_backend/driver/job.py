"""A graph that one engine runs as a whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule

from torch_max_backend import environment, profile
from torch_max_backend.cache import key, loaded_models
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.driver.background import Background
from torch_max_backend.driver.compiling import compile_together, make_plans, show_module
from torch_max_backend.driver.loading import executable, model_place, stored_models
from torch_max_backend.driver.passes import own_modes, prepare
from torch_max_backend.driver.unit import CompiledGraph, Function, caching
from torch_max_backend.errors import MaxBackendError, StepsError
from torch_max_backend.log import say
from torch_max_backend.options import Options
from torch_max_backend.process.compile_slots import alone_on_machine
from torch_max_backend.runtime.complex_adapter import with_pairs

if TYPE_CHECKING:
    from max.engine import Model

    from torch_max_backend.engines.steps.planner.plan import Plan
    from torch_max_backend.graph.trace import Trace


def job_of(
    module: GraphModule, static: Collection[int], options: Options, exact: int | None = None
) -> Job:
    """Analyse a functional ATen graph for one engine; nothing is compiled yet.

    Args:
        module: The graph, which is changed.
        static: Positions of arguments whose memory rarely changes.
        options: The user's options.
        exact: How many results, the first ones, need the very strides that torch promised; the
            others are for a backward graph. All if ``None``.

    Raises:
        UnsupportedError: Something in the graph has no MAX counterpart.
        OptionError: An option is unavailable here.
        StepsError: ``engine="steps"``, and a tensor is not on CPU.
    """
    with own_modes():
        clock = profile.Clock()
        if environment.verbose():
            say(module.print_readable(print_output=False))
        trace = prepare(module, options, exact)
        constants = trace.constants()
        clock.lap("analyse")
        # Without the disk as well: equal graphs of one process share a model.
        engine = engine_of(trace.module, options)
        parts = {**key.components(trace), "engine": engine}
        entry = key.cache_key(parts)
        clock.lap("key")
        return Job(module, trace, entry, parts, constants, static, options, clock, engine)


def engine_of(module: GraphModule, options: Options) -> str:
    """Who is to execute a graph: ``auto`` and ``steps`` as options say, ``max`` off the CPU.

    Raises:
        StepsError: ``engine="steps"``, and a tensor is not on CPU.
    """
    from torch_max_backend.engines.steps.planned import on_cpu

    engine = options.engine or environment.engine()
    if engine == "max" or on_cpu(module):
        return engine
    if engine == "steps":
        raise StepsError("The steps engine runs on CPU alone, and a tensor is on another device.")
    return "max"


@dataclass(eq=False)
class Job:
    """A graph to be made a function of, now or by a thread.

    Attributes:
        module: The graph as torch can run it.
        trace: The graph as it is converted, and how it is called.
        entry: The key of its artifact.
        parts: What the key is made of, by name.
        constants: Tensors of the traced graph that are inputs of the model.
        static: Positions of arguments whose memory rarely changes.
        options: The user's options.
        clock: Seconds of each stage.
        engine: ``"steps"``, ``"max"`` or ``"auto"``.
        record: Called with the times of each call, where calls are timed.
        partly: Whether torch runs the nodes without a step where those are few, instead of MAX the
            whole graph.
        small: Whether torch runs them, be they few or not: MAX would not be worth its call.
    """

    module: GraphModule
    trace: Trace
    entry: str
    parts: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    static: Collection[int]
    options: Options
    clock: profile.Clock
    engine: str = "max"
    record: profile.Graph | None = None
    partly: bool = False
    small: bool = False
    _plan: Plan | None = None

    def plan(self) -> Plan:
        """How the steps engine runs the graph; made once.

        Raises:
            ConversionError: A lowering failed.
            StepsError: An operation has no step.
        """
        from torch_max_backend.engines.steps.planned import planned

        if self._plan is None:
            self._plan = planned(self.trace)
        return self._plan

    def is_cut(self, error: MaxBackendError) -> bool:
        """Whether what an error names is torch's, and the rest to be planned again."""
        if self.engine == "steps":
            return True
        names = {node for node, _ in error.refused}
        if self.small:
            return bool(names)
        plain = all(
            isinstance(n.target, OpOverload) and n.graph is self.trace.module.graph for n in names
        )
        # Each cut costs two tables and what fusion there was: MAX is better where cuts are many.
        return self.partly and bool(names) and plain and 2 * len(names) <= self.operators

    @property
    def chosen(self) -> Job:
        """The job itself, which has no rivals (``autotuned.Tuned``)."""
        return self

    @property
    def caching(self) -> bool:
        return caching(self.options)

    @property
    def replay(self) -> bool:
        """Whether kernel launches are captured and replayed, on a GPU."""
        return self.options.mode == "reduce-overhead"

    @property
    def operators(self) -> int:
        return sum(n.op == "call_function" for n in self.trace.module.graph.nodes)

    @property
    def place(self) -> str:
        """Under which the memo keeps the model."""
        return model_place(self.entry, self.caching)

    def graph(self, function: Function) -> CompiledGraph:
        """The graph, to be run by ``function``."""
        return CompiledGraph(
            function,
            self.entry if self.caching else "",
            self.trace.signature,
            self.constants,
            self.static,
            self.replay,
            self.options.fuse,
            not key.sources_vary_in(self.trace),
            bool(self.options.pack),
        )

    def in_background(self, eager: Function | None = None) -> Function:
        """The function; ``eager``, or else the graph as torch runs it, serves until it is ready,
        unless it is ready at once."""
        eager = eager or self.by_torch()
        found, origin = self._found()
        if found is not None:
            return self._executable(found, origin)

        if self.engine != "max" and make_plans([self]):
            return self.functions()[0]  # planning takes no longer than a call or two

        def compiled() -> Function:
            return self.functions()[0]

        if not environment.profile():
            return Background(eager, compiled)
        self.record = profile.start(self.clock, "background", self.operators)
        return Background(profile.counted(self.record, eager), compiled)

    def by_torch(self) -> Function:
        """The graph as torch runs it, for the arguments of the compiled one."""

        def real(arguments: list[Any]) -> list[Any]:
            return list(self.module(*arguments))

        return with_pairs(real, self.trace.signature)

    def functions(self, *others: Job) -> list[Function]:
        """The functions of this job and others, from the process, the disk or the compiler, which
        is given all that are missing as one module."""
        jobs = [self, *others]
        with ExitStack() as stack:
            stack.enter_context(own_modes())
            # A thread that comes second waits for the model of the first one.
            for place in sorted({job.place for job in jobs}):
                stack.enter_context(loaded_models.alone(place))
            done: dict[Job, Function] = {}
            missing = _look_up(jobs, done)
            if any(job.caching for job in missing):
                # Nor do two processes compile for one place.
                stack.enter_context(alone_on_machine(job.place for job in missing))
                missing = _look_up(missing, done)
            for job, plan in make_plans(missing).items():
                done[job] = job._executable({job.place: plan}, "planned")
            missing = [job for job in missing if job not in done]
            compiled = compile_together(missing) if missing else []
            for job, model in zip(missing, compiled, strict=True):
                origin = "compiled" if job is missing[0] else "joined"
                done[job] = job._executable({job.place: model}, origin)
            return [done[job] for job in jobs]

    def _found(self) -> tuple[dict[str, Model] | None, str]:
        """A loaded model, or those of a stored artifact, this one first, and where it is from."""
        shared = loaded_models.get(self.place)
        if self.caching:
            models = stored_models(self.entry)
        else:
            models = None if shared is None else {self.place: shared}
        self.clock.lap("load")
        if models is None:
            return None, ""
        if environment.verbose():
            self._show(models[self.place])
        return models, "loaded" if shared is None else "shared"

    def _show(self, model: Any) -> None:
        """Print what runs the graph: a plan, or the MAX graph that was compiled."""
        from torch_max_backend.engines.steps.plan_text import text_of
        from torch_max_backend.engines.steps.planner.plan import Plan

        if isinstance(model, Plan):
            say(text_of(model))
        else:
            from torch_max_backend.engines.max.module import build_module

            show_module(build_module([self.trace])[0])

    def _executable(self, models: dict[str, Model], origin: str) -> Function:
        record = self.record
        if environment.profile():
            record = record or profile.start(self.clock, origin, self.operators)
            profile.tell(record)
        signature = self.trace.signature
        return executable(
            models,
            signature,
            self.constants,
            self.static,
            record,
            self.replay,
            self.options.fuse,
            bool(self.options.pack),
        )


def _look_up(jobs: Sequence[Job], done: dict[Job, Function]) -> list[Job]:
    """Do the jobs whose models are ready without compiling; returns those that remain."""
    for job in jobs:
        job.clock.restart()
        models, origin = job._found()
        if models is not None:
            done[job] = job._executable(models, origin)
    return [job for job in jobs if job not in done]
