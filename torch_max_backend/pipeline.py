"""The whole road for one functional ATen graph: check, analyse, look up or compile, load."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import _disable_current_modes

from torch_max_backend import environment
from torch_max_backend.cache import store
from torch_max_backend.errors import CompilationError
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
    # AOTAutograd compiles under its fake tensor mode; the graph's constants are real.
    with _disable_current_modes():
        return _compile_graph(module, static, options)


def prepare(module: GraphModule, options: Options | None = None) -> Trace:
    """Check a graph and find out how its model will be called.

    Raises:
        UnsupportedError: Something in the graph has no MAX counterpart.
    """
    from torch_max_backend.convert.bank import add_addresses
    from torch_max_backend.convert.support import check_supported
    from torch_max_backend.graph.fold import fold_constants
    from torch_max_backend.graph.signature import analyse

    fold_constants(module)
    check_supported(module)
    trace = analyse(module)
    if options is None or options.bank is not False:
        add_addresses(trace)
    return trace


def _compile_graph(module: GraphModule, static: Collection[int], options: Options) -> CompiledGraph:
    from torch_max_backend.cache import key

    clock = _Clock()
    if environment.verbose():
        say(module.print_readable(print_output=False))
    trace = prepare(module, options)
    constants = trace.constants()
    clock.lap("analyse")

    entry, parts, model = "", {}, None
    if caching(options):
        parts = key.components(trace)
        entry = key.cache_key(parts)
        clock.lap("key")
        model = _load(entry)
        clock.lap("load")

    def finish() -> Function:
        with _disable_current_modes():
            made = _made(trace, entry, parts, elsewhere=bool(options.background), clock=clock)
        if environment.profile():
            say(f"torch_max_backend: compiled a graph: {clock}")
        return executable(made, trace.signature, constants, static)

    if model is not None:
        if environment.verbose():
            _show(_built(trace)[0])
        if environment.profile():
            say(f"torch_max_backend: compiled a graph: {clock}")
        function = executable(model, trace.signature, constants, static)
    elif options.background:
        from torch_max_backend.compile.background import Background

        function = Background(lambda arguments: list(module(*arguments)), finish)
    else:
        function = finish()
    return CompiledGraph(function, entry, trace.signature, constants, static)


def _made(
    trace: Trace, entry: str, parts: Mapping[str, str], *, elsewhere: bool, clock: _Clock
) -> Model:
    """Compile a trace, here or in a process of its own, and store the artifact."""
    from torch_max_backend.compile.module import (
        compile_module,
        load_models,
        load_serialized,
        serialized,
    )

    module, libraries = _built(trace)
    if environment.verbose():
        _show(module)
    clock.lap("build")
    count = sum(n.op == "call_function" for n in trace.module.graph.nodes)
    what = f"a graph of {count} operator{'s' * (count != 1)}"
    if elsewhere:
        from torch_max_backend.compile.worker import compile_elsewhere

        artifact = compile_elsewhere(module, libraries, what)
        clock.lap("compile")
        model = load_serialized(artifact)[0]
    else:
        compiled = compile_module(module, libraries, what)
        clock.lap("compile")
        model = load_models(compiled)[0]
        artifact = serialized(compiled) if entry else b""
    if entry:
        store.put(entry, artifact, parts)
    clock.lap("store")
    return model


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
    clock = _Clock()
    with _disable_current_modes():
        model = _load(entry)
        if model is None:
            return None
        clock.lap("load")
        if environment.profile():
            say(f"torch_max_backend: loaded a graph: {clock}")
        return executable(model, signature, constants, static)


def executable(
    model: Model,
    signature: Signature,
    constants: Mapping[str, torch.Tensor],
    static: Collection[int],
) -> Function:
    """The function that runs a loaded model, timed if the environment asks for it."""
    from torch_max_backend.runtime.executable import Executable

    function = Executable(model, signature, constants, static)
    return _Profiled(function) if environment.profile() else function


def _load(entry: str) -> Model | None:
    from torch_max_backend.compile.module import load_serialized

    artifact = store.get(entry)
    if artifact is None:
        return None
    try:
        return load_serialized(artifact)[0]
    except CompilationError as e:
        log.warning("A cached artifact is ignored: %s", e)
        store.discard(entry)
        return None


class _Clock:
    """Wall time of consecutive stages, in seconds."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._laps: list[tuple[str, float]] = []

    def lap(self, stage: str) -> None:
        now = time.perf_counter()
        self._laps.append((stage, now - self._last))
        self._last = now

    def __str__(self) -> str:
        return ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in self._laps)


class _Profiled:
    """An executable that prints how long each call took."""

    _boxed_call = True

    def __init__(self, function: Function) -> None:
        self._function = function

    def __call__(self, arguments: list[Any]) -> list[Any]:
        start = time.perf_counter()
        results = self._function(arguments)
        say(f"torch_max_backend: call {(time.perf_counter() - start) * 1e3:.3f} ms")
        return results
