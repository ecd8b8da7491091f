"""The whole road for one functional ATen graph: check, analyse, look up or compile, load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from torch_max_backend import environment, profile
from torch_max_backend.cache import memo, store
from torch_max_backend.errors import CompilationError, OptionError
from torch_max_backend.log import get_logger, say
from torch_max_backend.options import Options

if TYPE_CHECKING:
    from pathlib import Path

    from max.engine import Model
    from max.graph import Module

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
    """

    function: Function
    key: str
    signature: Signature
    constants: Mapping[str, torch.Tensor]
    static: Collection[int]


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
    from max._mlir_context import ensure_default_mlir_context

    # AOTAutograd compiles under its fake tensor mode; the graph's constants are real.
    # MLIR's context belongs to a thread, and torch.compile runs in any.
    with _disable_current_modes(), ensure_default_mlir_context():
        return _compile_graph(module, static, options)


def prepare(module: GraphModule, options: Options | None = None) -> Trace:
    """Check a graph and find out how its model will be called.

    Raises:
        UnsupportedError: Something in the graph has no MAX counterpart.
        OptionError: The bank that was asked for is not to be had here.
    """
    from torch_max_backend.bank.provider import provider
    from torch_max_backend.convert.bank import use_bank
    from torch_max_backend.convert.seed import use_seeds
    from torch_max_backend.convert.support import check_supported
    from torch_max_backend.graph.complex import real_pairs
    from torch_max_backend.graph.copies import gather_copies
    from torch_max_backend.graph.effects import inline_effects
    from torch_max_backend.graph.epilogues import fuse_epilogues
    from torch_max_backend.graph.fold import fold_constants
    from torch_max_backend.graph.inline import inlined
    from torch_max_backend.graph.signature import analyse

    module = inlined(module)
    inline_effects(module)
    fold_constants(module)
    real_pairs(module)
    gather_copies(module)
    wanted = None if options is None else options.bank
    found = None
    if wanted is not False:
        found = provider(wanted if isinstance(wanted, str) else None)
        if found is None:
            raise OptionError(f"Option 'bank': this machine has no {wanted!r}.")
        fuse_epilogues(module)
    check_supported(module)
    trace = analyse(module)
    use_seeds(trace)
    if found is not None:
        use_bank(trace, found)
    return trace


def _compile_graph(module: GraphModule, static: Collection[int], options: Options) -> CompiledGraph:
    from torch_max_backend.cache import key

    clock = profile.Clock()
    if environment.verbose():
        say(module.print_readable(print_output=False))
    trace = prepare(module, options)
    constants = trace.constants()
    clock.lap("analyse")
    # Without the disk as well: equal graphs of one process share a model.
    parts = key.components(trace)
    entry = key.cache_key(parts)
    clock.lap("key")
    job = _Job(trace, entry, parts, constants, static, options, clock)
    function = job.in_background(module) if options.background else job.function()
    stored = entry if job.caching else ""
    return CompiledGraph(function, stored, trace.signature, constants, static)


@dataclass(eq=False)
class _Job:
    """A graph to be made a function of, now or by a thread."""

    trace: Trace
    entry: str
    parts: Mapping[str, str]
    constants: Mapping[str, torch.Tensor]
    static: Collection[int]
    options: Options
    clock: profile.Clock
    record: profile.Graph | None = None

    @property
    def caching(self) -> bool:
        return caching(self.options)

    @property
    def operators(self) -> int:
        return sum(n.op == "call_function" for n in self.trace.module.graph.nodes)

    def in_background(self, module: GraphModule) -> Function:
        """The function; eager PyTorch serves until it is ready, unless it can be had at once."""
        from torch_max_backend.compile.background import Background
        from torch_max_backend.runtime.pairs import with_pairs

        model, origin = self._found()
        if model is not None:
            return self._executable(model, origin)

        def real(arguments: list[Any]) -> list[Any]:
            return list(module(*arguments))

        eager = with_pairs(real, self.trace.signature)
        if not environment.profile():
            return Background(eager, self.function)
        self.record = profile.start(self.clock, "background", self.operators)
        return Background(profile.counted(self.record, eager), self.function)

    def function(self) -> Function:
        """The function, from the process, the disk or the compiler."""
        from max._mlir_context import ensure_default_mlir_context

        with (
            _disable_current_modes(),
            ensure_default_mlir_context(),
            # A thread that comes second waits for the model of the first one.
            memo.alone(_place(self.entry, self.caching)),
        ):
            self.clock.restart()
            model, origin = self._found()
            if model is None:
                model, origin = self._made(), "compiled"
            return self._executable(model, origin)

    def _found(self) -> tuple[Model | None, str]:
        """A loaded model, or that of a stored artifact, and where it is from."""
        shared = memo.get(_place(self.entry, self.caching))
        model = _load(self.entry) if self.caching else shared
        self.clock.lap("load")
        if model is None:
            return None, ""
        if environment.verbose():
            _show(_built(self.trace)[0])
        return model, "loaded" if shared is None else "shared"

    def _made(self) -> Model:
        """Compile the trace, here or in a process of its own, and store the artifact."""
        from torch_max_backend.compile.module import (
            compile_module,
            load_models,
            load_serialized,
            serialized,
        )
        from torch_max_backend.compile.session import compile_place
        from torch_max_backend.compile.worker import compile_elsewhere

        background = bool(self.options.background)
        module, libraries = _built(self.trace)
        if environment.verbose():
            _show(module)
        self.clock.lap("build")
        count = self.operators
        what = f"a graph of {count} operator{'s' * (count != 1)}"
        with nullcontext(False) if background else compile_place() as here:
            if here:
                compiled = compile_module(module, libraries, what, count)
            else:
                artifact = compile_elsewhere(module, libraries, what, count, background=background)
        self.clock.lap("compile")
        model = load_models(compiled)[0] if here else load_serialized(artifact)[0]
        self.clock.lap("load")
        if self.caching:
            store.put(self.entry, serialized(compiled) if here else artifact, self.parts)
            self.clock.lap("store")
        return model

    def _executable(self, model: Model, origin: str) -> Function:
        record = self.record
        if environment.profile():
            record = record or profile.start(self.clock, origin, self.operators)
            profile.tell(record)
        place, trace = _place(self.entry, self.caching), self.trace
        return executable(place, model, trace.signature, self.constants, self.static, record)


def _built(trace: Trace) -> tuple[Module, list[Path]]:
    from torch_max_backend.compile.module import build_module

    return build_module([trace])


def _show(module: Module) -> None:
    say(str(module.mlir_module))


def load_graph(
    entry: str,
    signature: Signature,
    constants: Mapping[str, torch.Tensor],
    static: Collection[int],
) -> Function | None:
    """Load a stored graph without its FX graph; ``None`` if the store no longer has it."""
    clock, place = profile.Clock(), _place(entry, True)
    with _disable_current_modes(), memo.alone(place):
        clock.restart()
        shared = memo.get(place)
        model = _load(entry)
        if model is None:
            return None
        clock.lap("load")
        record = None
        if environment.profile():
            record = profile.start(clock, "loaded" if shared is None else "shared")
            profile.tell(record)
        return executable(place, model, signature, constants, static, record)


def executable(
    place: str,
    model: Model,
    signature: Signature,
    constants: Mapping[str, torch.Tensor],
    static: Collection[int],
    record: profile.Graph | None = None,
) -> Function:
    """The function that runs a loaded model, which equal graphs will find.

    Args:
        place: Under which the memo keeps the model.
        model: The loaded model.
        signature: How it is called.
        constants: Tensors of the traced graph that are inputs of the model.
        static: Positions of arguments whose memory rarely changes.
        record: Is told of each call; ``None`` where calls are not timed.
    """
    from torch_max_backend.runtime.executable import Executable
    from torch_max_backend.runtime.pairs import with_pairs

    function = with_pairs(Executable(model, signature, constants, static), signature)
    memo.keep(place, model, function)
    return function if record is None else profile.timed(record, function)


def _load(entry: str) -> Model | None:
    """The model of a key: the one that is loaded, or that of the stored artifact."""
    from torch_max_backend.compile.module import load_serialized

    model = memo.get(_place(entry, True))
    if model is not None:
        return model
    artifact = store.get(entry)
    if artifact is None:
        return None
    try:
        return load_serialized(artifact)[0]
    except CompilationError as e:
        log.warning("A cached artifact is ignored: %s", e)
        store.discard(entry)
        return None


def _place(entry: str, cached: bool) -> str:
    """Under which the memo keeps a model: with the folder of its artifact, if it has one, so that
    what is asked to be on disk is never answered by a model that is not."""
    return f"{entry} {environment.cache_dir()}" if cached else entry
