"""Many small programs compiled as one MAX module: tracing, conversion and execution are the real
ones, only the compile is shared."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._library.effects import EffectType
from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import torch_max_backend.ops  # noqa: F401
from torch_max_backend.cache.key import cache_key, components
from torch_max_backend.compile.loading import load_models
from torch_max_backend.compile.module import (
    build_module,
    compile_module,
    kernel_libraries,
    kernel_library,
    without_calls,
)
from torch_max_backend.convert.converter import build_graph
from torch_max_backend.errors import CompilationError
from torch_max_backend.graph.decompositions import decomposition_table
from torch_max_backend.graph.signature import Trace
from torch_max_backend.graph.whole import whole
from torch_max_backend.pipeline import prepare
from torch_max_backend.runtime.executable import Executable
from torch_max_backend.runtime.pairs import with_pairs


@dataclass
class Program:
    """A function of tensors, with the arguments it is traced and called with.

    Attributes:
        name: For reports.
        function: Takes the tensors, returns a tensor or a structure of tensors.
        tensors: Its arguments.
        dynamic: Trace with symbolic sizes.
        error: What tracing or conversion raised, if anything.
    """

    name: str
    function: Callable[..., Any]
    tensors: Sequence[torch.Tensor]
    dynamic: bool = False
    error: Exception | None = None
    trace: Trace | None = field(default=None, repr=False)
    executable: Callable[[list[Any]], list[Any]] | None = field(default=None, repr=False)

    def run(self, tensors: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """The tensors that the compiled program returns, for other arguments if they are given."""
        if self.error is not None:
            raise self.error
        assert self.executable is not None
        given = self.tensors if tensors is None else tensors
        return self.executable([t.detach().clone() for t in given])

    def eager(self, tensors: Sequence[torch.Tensor] | None = None) -> list[torch.Tensor]:
        """The tensors that eager PyTorch returns, for other arguments if they are given."""
        given = self.tensors if tensors is None else tensors
        return self.flat(*[t.detach().clone() for t in given])

    def assert_agrees(self, *, equal_nan: bool = False) -> None:
        """Assert that the compiled program returns what eager PyTorch does."""
        for ours, theirs in zip(self.run(), self.eager(), strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=equal_nan)

    def flat(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves(self.function(*tensors))
        return [v for v in leaves if isinstance(v, torch.Tensor)]

    def node_targets(self) -> set[Any]:
        """The operators in the traced graph."""
        assert self.trace is not None
        return {n.target for n in self.trace.module.graph.nodes if n.op == "call_function"}


def by_turns(
    cases: Mapping[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]],
) -> dict[str, Program]:
    """Each case as a program, one static, the next dynamic, and so on; compiled together. For
    operators whose rows in ``families/`` run both ways."""
    programs = {
        name: Program(name, function, given, i % 2 == 1)
        for i, (name, (function, given)) in enumerate(cases.items())
    }
    compile_together(list(programs.values()))
    return programs


def both_ways(
    cases: Mapping[str, tuple[Callable[..., Any], Sequence[torch.Tensor]]],
) -> dict[str, Program]:
    """Each case as a static and as a dynamic program, ``{name}-static`` and ``{name}-dynamic``,
    compiled together."""
    programs = {
        f"{name}-{'dynamic' if dynamic else 'static'}": Program(name, function, given, dynamic)
        for name, (function, given) in cases.items()
        for dynamic in (False, True)
    }
    compile_together(list(programs.values()))
    return programs


def trace_program(program: Program) -> Trace:
    """Trace a program to a functional ATen graph, decomposed by the package's table."""

    def traced(function: Callable[..., Any]) -> GraphModule:
        return make_fx(
            function,
            decomposition_table=decomposition_table(),
            tracing_mode="symbolic" if program.dynamic else "fake",
            _allow_non_fake_inputs=True,
        )(*[t.detach().clone() for t in program.tensors])

    mode = FunctionalTensorMode()

    # Operators with effects take tokens, which AOTAutograd makes and keeps elsewhere.
    def ordered(*tensors: torch.Tensor) -> list[torch.Tensor]:
        made = {effect: torch.ops.prims._make_token() for effect in EffectType}
        mode._tokens = dict(made)
        results = program.flat(*tensors)
        used = [token for effect, token in mode._tokens.items() if token is not made[effect]]
        if used:
            torch.ops.prims._sink_tokens(used)
        return results

    with warnings.catch_warnings(), whole():
        warnings.simplefilter("ignore")
        module = traced(dispatch_functionalize(ordered, mode))
    module.graph.eliminate_dead_code()
    return prepare(module)


def compile_together(programs: Sequence[Program]) -> None:
    """Trace, convert and compile programs as one module; failures stay with their program."""
    good: list[Program] = []
    for program in programs:
        try:
            program.trace = trace_program(program)
            good.append(program)
        except Exception as e:
            program.error = e
    _compile(good)


def _compile(programs: list[Program]) -> None:
    if not programs:
        return
    # Equal graphs share a model, as they do in a process of a user's.
    traces = [p.trace for p in programs if p.trace is not None]
    keys = [cache_key(components(trace)) for trace in traces]
    unique = dict(zip(keys, traces, strict=True))
    try:
        module, libraries = build_module(list(unique.values()))
    except Exception as e:
        # A failed build leaves its operations in the module: whoever fails is found alone.
        good = [p for p in programs if len(programs) > 1 and builds(p)]
        if len(good) == len(programs) or len(programs) == 1:
            for program in programs:
                program.error = e
            return
        _compile(good)
        return
    try:
        models = load_models(compile_module(module, libraries, f"{len(programs)} programs"))
    except Exception as e:
        if len(programs) == 1:
            if isinstance(e, CompilationError) and without_calls(e, traces):
                _compile(programs)
            else:
                programs[0].error = e
            return
        # One graph that MAX refuses fails the whole module: halve to find it.
        print(f"{len(programs)} programs did not compile together: {e}", file=sys.stderr)
        half = len(programs) // 2
        _compile(programs[:half])
        _compile(programs[half:])
        return
    model_of = dict(zip(unique, models, strict=True))
    for program, trace, key in zip(programs, traces, keys, strict=True):
        executable = Executable(model_of[key], trace.signature, trace.constants())
        program.executable = with_pairs(executable, trace.signature)


def builds(program: Program) -> bool:
    """Whether a program can be traced and converted to a MAX graph, which is not compiled."""
    try:
        program.trace = program.trace or trace_program(program)
        libraries = kernel_library(*kernel_libraries([program.trace]))
        build_graph(program.trace, "g0", libraries)
    except Exception as e:
        program.error = e
    return program.error is None
