"""Many small programs compiled as one MAX module: tracing, conversion and execution are the real
ones, only the compile is shared."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.conformance.program import Program, trace_program
from tests.support.module_cache import models_of
from torch_max_backend.cache.key import cache_key, components
from torch_max_backend.convert.converter import build_graph
from torch_max_backend.engines.max.executable import Executable
from torch_max_backend.engines.max.module import (
    build_module,
    kernel_libraries,
    kernel_library,
    without_calls,
)
from torch_max_backend.errors import CompilationError
from torch_max_backend.runtime.complex_adapter import with_pairs


def compile_module_of(programs: Sequence[Program]) -> None:
    """Trace, convert and compile programs as one module; failures stay with their program."""
    good: list[Program] = []
    for program in programs:
        try:
            program.trace = program.trace or trace_program(program)
            program.error = None
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
        models = models_of(module, libraries, f"{len(programs)} programs")
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
        program.model = model_of[key]
        executable = Executable(program.model, trace.signature, trace.constants())
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
