"""One model in this process: its structure, its first call, its steady state.

Run as ``python -m benchmarks.matrix.one PHASE NAME [SECONDS]``; prints one line of
JSON.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from benchmarks.matrix import CASES
from benchmarks.matrix.outputs import errors, in_dtype, stirred, tensors
from benchmarks.processes.first_call import compiled, cpu_seconds
from benchmarks.processes.models import ModelCase
from benchmarks.processes.steady import FRAMEWORKS, alternate
from torch_max_backend.compat import dynamo

# Large enough that no size is 1, which Dynamo treats in a way of its own.
BATCH, LENGTH = 2, 16


def made(case: ModelCase) -> tuple[nn.Module, Mapping[str, Any]]:
    """The model and arguments for it; always the same numbers."""
    torch.manual_seed(0)
    model = stirred(case.build())
    return model, case.inputs(BATCH, LENGTH)


def settings() -> Any:
    """Dynamo's, for these models: it leaves LSTMs to eager unless it is asked."""
    return dynamo.config.patch(allow_rnn=True)


def structure(case: ModelCase) -> dict[str, Any]:
    """What ``explain`` tells, without compiling: numbers of graphs, breaks and operators that MAX
    takes, which operators it refuses, how often and why, and how many are left to torch because
    their graph is too small."""
    from torch_max_backend import explain
    from torch_max_backend.explanation.report import SMALL

    model, inputs = made(case)
    with torch.no_grad(), settings():
        # Some models change at their first call, which no compiler understands.
        model(**inputs)
        found = explain(model, options={"cache": False, "fallback": "eager"}, **inputs)
    eager = [o for g in found.graphs for o in g.operators if o.place == "eager"]
    fallbacks: Counter[str] = Counter()
    for o in eager:
        if o.reason != SMALL:
            fallbacks[o.name] += o.count
    return {
        "graphs": len(found.graphs),
        "parts": sum(len(g.parts) for g in found.graphs),
        "breaks": len(found.breaks),
        "operators": sum(g.lowered for g in found.graphs),
        "small": sum(o.count for o in eager if o.reason == SMALL),
        "fallbacks": dict(sorted(fallbacks.items())),
        "parameters": found.parameters,
        "whole on steps": not eager
        and all(part.engine == "steps" for graph in found.graphs for part in graph.parts),
        "why": [
            *sorted({f"{o.name}: {o.reason} ({_short(o.where)})" for o in eager}),
            *sorted(
                {f"{b.reason.strip().splitlines()[0]} ({_short(b.where)})" for b in found.breaks}
            ),
        ],
    }


def _short(where: str) -> str:
    """A source line without the folder that libraries are in on this machine."""
    return re.sub(r"^/.*/(site-packages/|(?=torch_max_backend/))", "", where)


def first(case: ModelCase) -> dict[str, Any]:
    """The first call: seconds of wall and CPU, children included, and how right it is."""
    from torch_max_backend.compat.dynamo import counters
    from torch_max_backend.driver.torch_runs import COUNTERS

    model, inputs = made(case)
    with torch.no_grad(), settings():
        expected = tensors(model(**inputs))
        truth = in_dtype(model, inputs)
        function = compiled(model, "max", fullgraph=False, fallback="eager")
        wall, cpu = time.perf_counter(), cpu_seconds()
        output = function(**inputs)
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        found = errors(tensors(output), expected, truth)
    known = counters[COUNTERS]
    failed = {k: known[k] for k in ("failed graphs", "failed runs") if known[k]}
    return {"wall_s": wall, "cpu_s": cpu, **asdict(found), **failed}


def steady(case: ModelCase, seconds: float) -> dict[str, Any]:
    """Median milliseconds of a call in each framework, in turns."""
    model, inputs = made(case)
    failed: dict[str, str] = {}
    calls: dict[str, Callable[[], Any]] = {}
    with torch.no_grad(), settings():
        for framework in FRAMEWORKS:
            function = compiled(model, framework, fullgraph=False, fallback="eager")

            def call(function: Callable[..., Any] = function) -> Any:
                return function(**inputs)

            try:
                call()
            except Exception as e:
                failed[framework] = f"{type(e).__name__}: {e}".strip().splitlines()[0]
            else:
                calls[framework] = call
        return {**alternate(calls, seconds), "errors": failed}


def main(phase: str, name: str, seconds: str = "4") -> None:
    """The command line; see the top of this file."""
    case = CASES[name]
    if phase == "explain":
        report = structure(case)
    elif phase == "steady":
        report = steady(case, float(seconds))
    else:
        report = first(case)
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
