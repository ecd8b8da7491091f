"""The whole road for one functional ATen graph: check, analyse, look up or compile, load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from torch_max_backend import environment, profile
from torch_max_backend.cache import loaded_models, store
from torch_max_backend.errors import (
    CacheError,
    CompilationError,
    MaxBackendError,
    OptionError,
    StepsError,
)
from torch_max_backend.log import get_logger, say
from torch_max_backend.options import Options
from torch_max_backend.process import fork_safety
from torch_max_backend.process.private_folders import place

if TYPE_CHECKING:
    from max.engine import Model
    from max.graph import Module

    from torch_max_backend.engines.steps.planner.plan import Plan
    from torch_max_backend.graph.signature import Signature, Trace

log = get_logger("pipeline")

Function = Callable[[list[Any]], list[Any]]


@dataclass
class CompiledGraph:
    """A compiled graph and what is needed to load it again in another process.

    Attributes:
        function: Called with one list of arguments; returns the list of results.
        key: Key of its artifact in the store, "" where it is not stored.
        signature: How it is called.
        constants: Tensors of the traced graph that are inputs of the model.
        static: Positions of arguments whose memory rarely changes.
        replay: Whether kernel launches are captured and replayed, on a GPU.
        fuse: The option of that name.
        reusable: Whether AOTAutograd's key contains all that decides what this is.
    """

    function: Function
    key: str
    signature: Signature
    constants: Mapping[str, torch.Tensor]
    static: Collection[int]
    replay: bool = False
    fuse: bool | None = None
    reusable: bool = True


def caching(options: Options) -> bool:
    """Whether artifacts are kept on disk."""
    return environment.cache_enabled() if options.cache is None else options.cache


def compile_graph(module: GraphModule, static: Collection[int], options: Options) -> CompiledGraph:
    """Compile a functional ATen graph, or fetch its artifact from the store.

    Args:
        module: The graph, as AOTAutograd traced it.
        static: Positions of arguments whose memory rarely changes.
        options: The user's options.

    Raises:
        UnsupportedError: Something in the graph has no MAX counterpart.
        ConversionError: A lowering failed.
        CompilationError: MAX could not compile the graph.
    """
    from torch_max_backend.runtime.complex_adapter import with_pairs

    with own_modes():
        job = start(module, static, options)
        if not options.background:
            return job.graph(job.functions()[0])

        def real(arguments: list[Any]) -> list[Any]:
            return list(module(*arguments))

        return job.graph(job.in_background(with_pairs(real, job.trace.signature)))


@contextmanager
def own_modes() -> Iterator[None]:
    """AOTAutograd compiles under its fake tensor mode; the graph's constants are real, and on CPU
    whatever the default device is. MLIR's context belongs to a thread, and torch.compile runs in
    any."""
    from max._mlir_context import ensure_default_mlir_context

    with ExitStack() as stack:
        stack.enter_context(_disable_current_modes())
        if torch.get_default_device().type != "cpu":  # a mode that each call of torch goes through
            stack.enter_context(torch.device("cpu"))
        stack.enter_context(ensure_default_mlir_context())
        yield


def prepare(module: GraphModule, options: Options | None = None, exact: int | None = None) -> Trace:
    """Check a graph and find out how its model will be called; ``exact`` is that of ``start``.

    Raises:
        UnsupportedError: Something in the graph has no MAX counterpart.
        OptionError: The bank that was asked for is not to be had here.
    """
    from torch_max_backend.engines.steps.instructions import product_precision
    from torch_max_backend.gemm_providers.provider import provider
    from torch_max_backend.graph.capability import check_supported
    from torch_max_backend.graph.gemm_routines import use_bank
    from torch_max_backend.graph.passes.complex_pairs import real_pairs
    from torch_max_backend.graph.passes.constant_folding import fold_constants
    from torch_max_backend.graph.passes.effect_tokens import inline_effects
    from torch_max_backend.graph.passes.epilogue_fusion import fuse_epilogues
    from torch_max_backend.graph.passes.float8 import bytes_for_float8
    from torch_max_backend.graph.passes.inline_higher_order import inlined
    from torch_max_backend.graph.passes.narrow_weights import take_narrow_weights
    from torch_max_backend.graph.passes.strided_copies import gather_copies
    from torch_max_backend.graph.random_seeds import use_seeds
    from torch_max_backend.graph.signature import analyse

    module = inlined(module)
    inline_effects(module)
    fold_constants(module)
    real_pairs(module)
    bytes_for_float8(module)
    gather_copies(module)
    wanted = None if options is None else options.bank
    found = None
    if wanted is not False:
        found = provider(wanted if isinstance(wanted, str) else None)
        if found is None:
            raise OptionError(f"Option 'bank': this machine has no {wanted!r}.")
        take_narrow_weights(module)
        fuse_epilogues(module)
    check_supported(module)
    trace = analyse(module, exact)
    use_seeds(trace)
    if found is not None:
        use_bank(trace, found)
    trace.signature.precision = product_precision()
    return trace


def start(
    module: GraphModule, static: Collection[int], options: Options, exact: int | None = None
) -> Job:
    """Analyse a functional ATen graph; the arguments and errors are those of ``compile_graph``,
    but nothing is compiled yet.

    Args:
        exact: How many results, the first ones, need the very strides that torch promised; the
            others are for a backward graph. All if ``None``.
    """
    from torch_max_backend.cache import key

    if options.mode == "max-autotune":
        from torch_max_backend.driver.autotuned import Tuned

        return Tuned(module, static, options, exact)
    with own_modes():
        clock = profile.Clock()
        if environment.verbose():
            say(module.print_readable(print_output=False))
        trace = prepare(module, options, exact)
        constants = trace.constants()
        clock.lap("analyse")
        # Without the disk as well: equal graphs of one process share a model.
        engine = engine_of(trace, options)
        parts = {**key.components(trace), "engine": engine}
        entry = key.cache_key(parts)
        clock.lap("key")
        return Job(trace, entry, parts, constants, static, options, clock, engine)


def engine_of(trace: Trace, options: Options) -> str:
    """Who is to execute a graph: ``auto`` and ``steps`` as options say, ``max`` off the CPU.

    Raises:
        StepsError: ``engine="steps"``, and a tensor is not on CPU.
    """
    from torch_max_backend.engines.steps.planned import on_cpu

    engine = options.engine or environment.engine()
    if engine == "max" or on_cpu(trace):
        return engine
    if engine == "steps":
        raise StepsError("The steps engine runs on CPU alone, and a tensor is on another device.")
    return "max"


@dataclass(eq=False)
class Job:
    """A graph to be made a function of, now or by a thread.

    Attributes:
        partly: Whether torch runs the nodes without a step where those are few, instead of MAX the
            whole graph.
    """

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
        plain = all(
            isinstance(n.target, OpOverload) and n.graph is self.trace.module.graph for n in names
        )
        # Each cut costs two tables and what fusion there was: MAX is better where cuts are many.
        return self.partly and bool(names) and plain and 2 * len(names) <= self.operators

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
        return _place(self.entry, self.caching)

    def graph(self, function: Function) -> CompiledGraph:
        """The graph, to be run by ``function``."""
        from torch_max_backend.cache.key import sources_vary_in

        return CompiledGraph(
            function,
            self.entry if self.caching else "",
            self.trace.signature,
            self.constants,
            self.static,
            self.replay,
            self.options.fuse,
            not sources_vary_in(self.trace),
        )

    def in_background(self, eager: Function) -> Function:
        """The function; ``eager`` serves until it is ready, unless it can be had at once."""
        from torch_max_backend.driver.background import Background

        found, origin = self._found()
        if found is not None:
            return self._executable(found, origin)

        if self.engine != "max" and _planned([self]):
            return self.functions()[0]  # planning takes no longer than a call or two

        def compiled() -> Function:
            return self.functions()[0]

        if not environment.profile():
            return Background(eager, compiled)
        self.record = profile.start(self.clock, "background", self.operators)
        return Background(profile.counted(self.record, eager), compiled)

    def functions(self, *others: Job) -> list[Function]:
        """The functions of this job and others, from the process, the disk or the compiler, which
        is given all that are missing as one module."""
        from torch_max_backend.process.compile_slots import alone_on_machine

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
            for job, plan in _planned(missing).items():
                done[job] = job._executable({job.place: plan}, "planned")
            missing = [job for job in missing if job not in done]
            for job, model in zip(missing, _made(missing) if missing else (), strict=True):
                origin = "compiled" if job is missing[0] else "joined"
                done[job] = job._executable({job.place: model}, origin)
            return [done[job] for job in jobs]

    def _found(self) -> tuple[dict[str, Model] | None, str]:
        """A loaded model, or those of a stored artifact, this one first, and where it is from."""
        shared = loaded_models.get(self.place)
        if self.caching:
            models = _load(self.entry)
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

            _show(build_module([self.trace])[0])

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
        )


def _look_up(jobs: Sequence[Job], done: dict[Job, Function]) -> list[Job]:
    """Do the jobs whose models are to be had without compiling; those that remain."""
    for job in jobs:
        job.clock.restart()
        models, origin = job._found()
        if models is not None:
            done[job] = job._executable(models, origin)
    return [job for job in jobs if job not in done]


def _planned(jobs: Sequence[Job]) -> dict[Job, Plan]:
    """Plan those jobs that the steps engine can run, and store the plans.

    Raises:
        StepsError: One cannot be, and its engine is to be ``steps``, or torch runs what it cannot.
        CompilationError: A library of kernels cannot be built, and the engine is to be ``steps``.
    """
    from torch_max_backend.driver.dump import keep_plan
    from torch_max_backend.engines.steps.plan_text import text_of
    from torch_max_backend.engines.steps.serialize import serialized
    from torch_max_backend.engines.steps.table import kernels_of
    from torch_max_backend.runtime.resident import release_builder

    found: dict[Job, Plan] = {}
    for job in jobs:
        if job.engine == "max":
            continue
        try:
            plan = job.plan()
            job.clock.lap("plan")
            if environment.verbose():
                say(text_of(plan))
            kernels_of(plan)
            job.clock.lap("kernels")
        except (StepsError, CompilationError) as e:
            if job.is_cut(e):
                raise
            log.info("MAX compiles a graph: %s", e)
            continue
        found[job] = plan
        keep_plan(job, plan)
        if job.caching:
            store.put(job.entry, serialized(plan), job.parts, [job.entry])
            job.clock.lap("store")
    if found:
        release_builder()
    return found


def _made(jobs: Sequence[Job]) -> list[Model]:
    """Compile jobs as one module, here or in a process of its own, and store the artifact."""
    from torch_max_backend.driver.dump import keep
    from torch_max_backend.engines.max.loading import load_models, load_serialized
    from torch_max_backend.engines.max.module import (
        build_module,
        compile_module,
        serialized,
        without_calls,
    )
    from torch_max_backend.engines.max.worker import compile_elsewhere
    from torch_max_backend.process.compile_slots import compile_place

    fork_safety.check_compile()
    background, clock = bool(jobs[0].options.background), jobs[0].clock
    traces = [job.trace for job in jobs]
    module, libraries = build_module(traces)
    if environment.verbose():
        _show(module)
    clock.lap("build")
    count = sum(job.operators for job in jobs)
    graphs = "a graph" if len(jobs) == 1 else f"{len(jobs)} graphs"
    what = f"{graphs} of {count} operator{'s' * (count != 1)}"
    try:
        with nullcontext(False) if background else compile_place() as here:
            if here:
                compiled = compile_module(module, libraries, what, count)
            else:
                artifact = compile_elsewhere(module, libraries, what, count, background=background)
    except CompilationError as e:
        if without_calls(e, traces):
            return _made(jobs)
        raise
    clock.lap("compile")
    keep(jobs, module, lambda: serialized(compiled) if here else artifact)
    models = load_models(compiled) if here else load_serialized(artifact)
    clock.lap("load")
    if jobs[0].caching:
        keys = [job.entry for job in jobs]
        try:
            artifact = serialized(compiled) if here else artifact
        except CacheError as e:
            store.not_stored(keys, e)
        else:
            for job in jobs:
                store.put(job.entry, artifact, job.parts, keys)
        clock.lap("store")
    return models


def _show(module: Module) -> None:
    say(str(module.mlir_module))


def load_graph(
    entry: str,
    signature: Signature,
    constants: Mapping[str, torch.Tensor],
    static: Collection[int],
    given: store.Entry | None = None,
    replay: bool = False,
    fuse: bool | None = None,
) -> Function | None:
    """Load a stored graph without its FX graph; ``None`` if the store no longer has it and no
    artifact is ``given``.

    Raises:
        CompilationError: MAX cannot read the artifact that is ``given``.
    """
    clock, place = profile.Clock(), _place(entry, given is None)
    with _disable_current_modes(), loaded_models.alone(place):
        clock.restart()
        shared = loaded_models.get(place)
        models = _load(entry, given)
        if models is None:
            return None
        clock.lap("load")
        record = None
        if environment.profile():
            record = profile.start(clock, "loaded" if shared is None else "shared")
            profile.tell(record)
        return executable(models, signature, constants, static, record, replay, fuse)


def executable(
    models: dict[str, Model],
    signature: Signature,
    constants: Mapping[str, torch.Tensor],
    static: Collection[int],
    record: profile.Graph | None = None,
    replay: bool = False,
    fuse: bool | None = None,
) -> Function:
    """The function that runs the first of some loaded models; equal graphs will find them all.

    Args:
        models: The loaded models of one artifact, by the places where the memo keeps them.
        signature: How the first is called.
        constants: Tensors of the traced graph that are inputs of the model.
        static: Positions of arguments whose memory rarely changes.
        record: Is told of each call; ``None`` where calls are not timed.
        replay: Capture and replay kernel launches, on a GPU.
        fuse: The option of that name, for a plan.
    """
    from torch_max_backend.engines.steps.planner.plan import Plan
    from torch_max_backend.engines.steps.run import StepExecutable, time_steps
    from torch_max_backend.runtime.complex_adapter import with_pairs

    model = next(iter(models.values()))
    if isinstance(model, Plan):
        wanted = False if fuse is None and not environment.fuse() else fuse
        run: Function = StepExecutable(model, signature, constants, static, wanted)
    else:
        from torch_max_backend.engines.max.executable import Executable

        run = Executable(model, signature, constants, static, replay)
    function = with_pairs(run, signature)
    loaded_models.keep(models, function)
    if record is None:
        return function
    if isinstance(run, StepExecutable):
        record.steps = time_steps(run)
    return profile.timed(record, run, function)


def _load(entry: str, given: store.Entry | None = None) -> dict[str, Model] | None:
    """The model of a key, by its place: the one that is loaded, or that of the stored artifact and
    behind it the artifact's others."""
    cached = given is None
    place = _place(entry, cached)
    model = loaded_models.get(place)
    if model is not None:
        return {place: model}
    stored = given or store.get(entry)
    if stored is None:
        return None
    try:
        models = _loaded(stored.artifact)
    except CompilationError as e:
        if not cached:
            raise
        log.warning("A cached artifact is ignored: %s", e)
        store.discard(entry)
        return None
    loaded = {_place(key, cached): m for key, m in zip(stored.graphs, models, strict=True)}
    return {place: loaded.pop(place), **loaded}


def _loaded(artifact: bytes) -> list[Any]:
    """The plan or the models of an artifact.

    Raises:
        CompilationError: It cannot be read, or its kernels cannot be built.
    """
    from torch_max_backend.engines.steps.serialize import MAGIC

    if artifact.startswith(MAGIC):
        from torch_max_backend.engines.steps.serialize import deserialized
        from torch_max_backend.engines.steps.table import kernels_of

        plan = deserialized(artifact)
        kernels_of(plan)
        return [plan]
    from torch_max_backend.engines.max.loading import load_serialized

    fork_safety.check_compile()
    return load_serialized(artifact)


def _place(entry: str, cached: bool) -> str:
    """Under which the memo keeps a model: with the folder of its artifact, if it has one, so that
    what is asked to be on disk is never answered by a model that is not."""
    return f"{entry} {place('')}" if cached else entry
