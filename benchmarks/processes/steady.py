"""Steady state: eager, inductor and max on one model, in turns in one process.

Run as ``python -m benchmarks.processes.steady MODEL SECONDS [FRAMEWORK ...]``; ``add8`` is
``x + y`` on 8x8, whose time is the overhead of a call; further frameworks are ``max:mojo``,
``max:mkl`` and ``max:native``. Prints one line of JSON: median milliseconds by framework.
"""

from __future__ import annotations

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.processes.first_call import compiled
from benchmarks.processes.models import MODELS

FRAMEWORKS = ("eager", "inductor", "max")


def alternate(
    functions: dict[str, Callable[[], Any]], seconds: float, settle: float = 0.0
) -> dict[str, float]:
    """Median milliseconds a call of each function, in turns, for about ``seconds``.

    A turn is several calls, the first of them, and those of the first ``settle`` seconds, not
    counted: the threads of one framework spin for a while after its last call, on the cores that
    the next one needs.
    """
    for function in functions.values():
        for _ in range(3):
            function()
    times: dict[str, list[float]] = {name: [] for name in functions}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(times.values()))) < 10:
        for name, function in functions.items():
            function()
            counted = time.perf_counter() + settle
            turn = counted + seconds / 20
            for i in itertools.count():
                start = time.perf_counter()
                if i >= 3 and start > turn:
                    break
                function()
                if start >= counted:
                    times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) * 1e3 for name, values in times.items()}


def main(name: str, seconds: float, more: Sequence[str]) -> None:
    """The command line; see the top of this file."""
    frameworks = [*FRAMEWORKS, *more]
    torch.manual_seed(0)
    if name == "add8":
        x, y = torch.randn(8, 8), torch.randn(8, 8)
        calls = {f: compiled(lambda a, b: a + b, f) for f in frameworks}
        run = {f: (lambda g=g: g(x, y)) for f, g in calls.items()}
    else:
        case = MODELS[name]
        model, inputs = case.build(), case.inputs(1, 128)
        calls = {f: compiled(model, f) for f in frameworks}
        run = {f: (lambda g=g: g(**inputs)) for f, g in calls.items()}
    with torch.no_grad():
        print(json.dumps(alternate(run, min(seconds, 3.0) if name == "add8" else seconds)))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
