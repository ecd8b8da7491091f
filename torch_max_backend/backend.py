"""The backend object that ``torch.compile`` calls."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any, Protocol

from torch import Tensor
from torch.fx import GraphModule

from torch_max_backend import environment, profile, unused_backend
from torch_max_backend.cache import torch_artifacts
from torch_max_backend.compat import dynamo_shortcuts, hooks
from torch_max_backend.compat.autograd import (
    OutputCode,
    SerializableAOTDispatchCompiler,
    aot_autograd,
    config,
)
from torch_max_backend.compat.tensors import is_wrapped
from torch_max_backend.compat.tracing import TracingContext
from torch_max_backend.driver.calls import called
from torch_max_backend.driver.strategies import compile_graph, start
from torch_max_backend.driver.torch_runs import falls_back, left_to_torch
from torch_max_backend.driver.unit import CompiledGraph, caching
from torch_max_backend.errors import (
    ForkError,
    MaxBackendError,
    OptionError,
    UnsupportedError,
    join_dynamo,
)
from torch_max_backend.graph.signature_schema import GRADIENTS
from torch_max_backend.log import get_logger
from torch_max_backend.options import Options
from torch_max_backend.process import fork_fallback, fork_safety
from torch_max_backend.process.garbage import collected_later, count_as_old
from torch_max_backend.registry import type_checks  # noqa: F401  imports beartype, for good
from torch_max_backend.runtime.resident import release_gpu_code

log = get_logger("backend")

dynamo_shortcuts.leave_out()
join_dynamo()
torch_artifacts.register()


class MaxBackend:
    """Compiles the graphs that Dynamo captures with MAX.

    One object for the whole process, so that Dynamo's guards see the same backend each time.
    """

    __name__ = "max"

    # torch.compile (2.15) calls it when it is given this backend.
    _dynamo_backend_init = staticmethod(unused_backend.asked)

    def __call__(
        self,
        module: GraphModule,
        example_inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Callable[..., Any]:
        """Compile one Dynamo graph.

        Args:
            module: The graph.
            example_inputs: Its example arguments.
            mode: One of ``torch_max_backend.options.MODES``.
            options: Fields of ``torch_max_backend.options.Options``.

        Raises:
            OptionError: A mode or option is unknown, or is unavailable here.
            SettingError: An environment variable is set to what it cannot be.
            UnsupportedError: With ``fallback="error"``: something in the graph has no MAX
                counterpart.
            ConversionError: With ``fallback="error"``: a lowering failed.
            CompilationError: With ``fallback="error"``: MAX could not compile the graph.
        """
        unused_backend.reached()
        release_gpu_code()
        try:
            parsed = Options.parse(mode, options)
            saved = config.bypass_autograd_cache_key
            if saved:
                # For torch's save_compiled_function: one artifact, which the cache hands over, and
                # what AOTAutograd made, without a function around it.
                parsed = replace(parsed, cache=True, fallback="error", background=False)
            try:
                fork_safety.check()
                # Tracing lets go of few objects that hold each other.
                with collected_later():
                    # Dynamo has made so many that a collection of all is due in the first call.
                    count_as_old()
                    compiled = self._compile(module, example_inputs, parsed)
                if saved:
                    return compiled
                return called(compiled, module if falls_back(parsed) else None)
            except OptionError:
                raise
            except MaxBackendError as e:
                if not falls_back(parsed):
                    raise
                if isinstance(e, ForkError):
                    return fork_fallback.eager(e, module)
                return left_to_torch(module, example_inputs, e, parsed)
        except MaxBackendError as e:
            # Where the traceback that torch.compile shows begins.
            e.first_useful_frame = sys._getframe()
            raise

    def _compile(
        self, module: GraphModule, example_inputs: Sequence[Any], options: Options
    ) -> Callable[..., Any]:
        hooks.watch(_hook_came_late)
        if any(isinstance(x, Tensor) and is_wrapped(x) for x in example_inputs):
            raise UnsupportedError(
                "An argument belongs to a transform of torch.func, and has no memory of its own.",
                "Return it from the function that is transformed, instead of keeping it.",
            )
        # A hit in AOTAutograd's cache has no graph to show.
        reuse = caching(options) and not environment.verbose()
        return trace(module, example_inputs, options, _Compilers(options), reuse)


@cache
def _hook_came_late(kind: type) -> None:
    """Said once of each class."""
    log.warning(
        "A hook was registered on a %s that is part of a compiled model: it does not run in what "
        "is compiled already. Register hooks before the first call; or call torch.compiler.reset() "
        "afterwards; or set torch._dynamo.config.skip_nnmodule_hook_guards = False before it, and "
        "each call looks for them.",
        kind.__name__,
    )


class Compilers(Protocol):
    """What AOTAutograd calls with the functional ATen graphs of one Dynamo graph. Each returns what
    is called with one list of arguments."""

    def inference(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any: ...
    def forward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any: ...
    def backward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any: ...


def trace(
    module: GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    compilers: Compilers,
    reuse: bool,
) -> Callable[..., Any]:
    """Trace a Dynamo graph as this backend does, and have its ATen graphs compiled.

    Args:
        module: The graph.
        example_inputs: Its example arguments.
        options: The user's options.
        compilers: Are given the graphs.
        reuse: Whether AOTAutograd's cache may answer instead.

    Raises:
        SettingError: An environment variable is set to what it cannot be.
    """
    # All of them now: some are read by threads, or while a model runs, where nobody sees an error.
    environment.check()
    from torch_max_backend.driver.autograd_cache import autograd_cache

    def partition(*args: Any, **kwargs: Any) -> Any:
        from torch_max_backend.graph.partition import partition

        return partition(*args, **kwargs)

    stack = ExitStack()
    compiler = aot_autograd(
        fw_compiler=SerializableAOTDispatchCompiler(OutputCode, compilers.forward),
        bw_compiler=SerializableAOTDispatchCompiler(OutputCode, compilers.backward),
        inference_compiler=SerializableAOTDispatchCompiler(OutputCode, compilers.inference),
        partition_fn=partition,
        decompositions=_Decompositions(stack),
        keep_inference_input_mutations=True,
    )
    settings = config.patch(
        # Tokens of operators with effects are made in the graph, not arguments of it.
        unlift_effect_tokens=True,
        # Otherwise the backward compiler is called when the backward pass first is.
        force_non_lazy_backward_lowering=True,
        activation_memory_budget=(
            config.activation_memory_budget
            if options.activation_memory_budget is None
            else options.activation_memory_budget
        ),
    )
    with stack, autograd_cache(reuse, options, example_inputs), settings, profile.tracing():
        return compiler(module, example_inputs)


class _Decompositions(dict[Any, Any]):
    """The table of decompositions, made when torch first looks into it to trace: what AOTAutograd's
    cache answers needs neither the lowerings nor MAX.

    Args:
        tracing: Has entered what tracing needs once the table is made.
    """

    def __init__(self, tracing: ExitStack) -> None:
        super().__init__()
        self._tracing: ExitStack | None = tracing

    def _made(self) -> dict[Any, Any]:
        if self._tracing is not None:
            tracing, self._tracing = self._tracing, None
            self.update(_table(tracing))
        return self

    def __bool__(self) -> bool:
        return dict.__len__(self._made()) > 0

    def __len__(self) -> int:
        return dict.__len__(self._made())

    def __iter__(self) -> Iterator[Any]:
        return dict.__iter__(self._made())

    def __contains__(self, op: object) -> bool:
        return dict.__contains__(self._made(), op)

    def __getitem__(self, op: Any) -> Any:
        return dict.__getitem__(self._made(), op)

    def keys(self) -> Any:
        return dict.keys(self._made())


def _table(tracing: ExitStack) -> dict[Any, Any]:
    from torch_max_backend.compat.max_graphs import ensure_default_mlir_context
    from torch_max_backend.runtime.resident import release_builder

    release_builder()  # loading the libraries reads far more of them than tracing and planning do
    # MLIR's context belongs to a thread, and MAX makes types in it while it is imported.
    with ensure_default_mlir_context():
        import torch_max_backend.ops  # noqa: F401  registers the lowerings
    from torch_max_backend.graph.decompositions.table import decomposition_table
    from torch_max_backend.graph.dispatch_override import whole
    from torch_max_backend.ops.grouped import map_transformers

    map_transformers()
    tracing.enter_context(whole())
    return decomposition_table()


class _Compilers:
    """What AOTAutograd calls with the functional ATen graphs of one Dynamo graph.

    A forward graph and its backward graph, given one after the other, become one module. Whoever
    never differentiates should not suffer from what the backward graph holds: if that cannot be
    compiled, the forward graph is compiled alone, and the error comes when the backward pass does.
    """

    def __init__(self, options: Options) -> None:
        self.options = options

    def inference(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        from torch_max_backend.driver.autograd_cache import MaxOutputCode

        return MaxOutputCode(_kept(compile_graph(module, static_arguments(), self.options)))

    def forward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        from torch_max_backend.driver.autograd_cache import MaxOutputCode

        allow_second_backward()
        # Each step of training writes to all parameters.
        self.options = replace(self.options, pack=None)
        if self.options.background:
            return self.inference(module, example_inputs)
        self.job = start(module, static_arguments(), self.options, returned())
        alone = _Lazy(lambda: self.job.functions()[0])
        self.code = MaxOutputCode(self.job.graph(alone))
        return self.code

    def backward(self, module: GraphModule, example_inputs: Sequence[Any]) -> Any:
        from torch_max_backend.driver.autograd_cache import MaxOutputCode, leave_out

        def alone() -> Callable[[list[Any]], list[Any]]:
            return compile_graph(module, (), self.options).function

        if self.options.background:
            leave_out()
            return _Lazy(alone)
        try:
            module.meta[GRADIENTS] = True
            job = start(module, (), self.options)
            forward, backward = self.job.functions(job)
        except OptionError:
            raise
        except MaxBackendError as e:
            log.info("The backward graph waits for its first call: %s", e)
            leave_out()
            self.code.compiled = self.job.graph(self.job.functions()[0])
            return _Lazy(alone)
        self.code.compiled = _kept(self.job.graph(forward))
        return MaxOutputCode(_kept(job.graph(backward)))


class _Lazy:
    """Compiles at the first call."""

    def __init__(self, compile: Callable[[], Callable[[list[Any]], list[Any]]]) -> None:
        # An attribute of the instance: AOTAutograd's wrappers copy __dict__ to learn of it.
        self._boxed_call = True
        self._compile = compile
        self._compiled: Callable[[list[Any]], list[Any]] | None = None
        self._lock = fork_safety.lock()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        if self._compiled is None:
            with self._lock:
                if self._compiled is None:
                    self._compiled = self._compile()
        return self._compiled(arguments)


def _kept(compiled: CompiledGraph) -> CompiledGraph:
    """A graph as it is; AOTAutograd's cache learns if it has no artifact, or more than one, or if
    another artifact may be right next time."""
    from torch_max_backend.driver.autograd_cache import ahead_of_time, leave_out

    if not compiled.key or not (compiled.reusable or ahead_of_time()):
        leave_out()
    return compiled


def _metadata() -> Any:
    """What AOTAutograd knows of the forward graph, or ``None``."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


def allow_second_backward() -> None:
    """Tell AOTAutograd that backward overwrites nothing that forward saved. It would refuse
    ``retain_graph=True``, as if inductor had made the graphs."""
    metadata = _metadata()
    if metadata is not None:
        metadata.bw_donated_idxs = []


def static_arguments() -> Collection[int]:
    """Positions of parameters and buffers among a graph's arguments, as AOTAutograd found them."""
    metadata = _metadata()
    return frozenset(metadata.static_input_indices or ()) if metadata is not None else frozenset()


def returned() -> int | None:
    """How many results of a forward graph are not only for its backward graph."""
    metadata = _metadata()
    return None if metadata is None else metadata.num_forward


max_backend = MaxBackend()
