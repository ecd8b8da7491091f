"""How much a compile in the background slows eager PyTorch down.

Run as ``python -m benchmarks.processes.background MODEL [SECONDS]``, with an empty cache
(``TORCH_MAX_BACKEND_CACHE_DIR``, ``MODULAR_CACHE_DIR``) or the compile is over too soon. Calls the
eager model for SECONDS (20) before, as long as the compile lasts, and for SECONDS after; prints one
line of JSON: median milliseconds and the number of calls in each of the three, the ratio
``during_over_before``, and how long the compile took (null: longer than eight times SECONDS; then
"after" is not after it). ``served_ms`` is the median of the compiled function's calls meanwhile,
which eager PyTorch answers too, but from the traced graph.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.processes.models import MODELS
from torch_max_backend.driver import background

# Times SECONDS; a compile that lasts longer is not waited for.
_LONGEST = 8


def calls(functions: Sequence[Callable[[], Any]], until: Callable[[], bool]) -> list[list[float]]:
    """Milliseconds of the calls of each function, called in turn until a condition holds."""
    times: list[list[float]] = [[] for _ in functions]
    while not until():
        for function, series in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            series.append((time.perf_counter() - start) * 1e3)
    return times


def after(seconds: float) -> Callable[[], bool]:
    """A condition that holds from some time on."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end


def report(
    before: list[float], during: list[float], served: list[float], later: list[float]
) -> dict[str, Any]:
    """The figures of four series of calls.

    Raises:
        SystemExit: The compile was over too soon to measure.
    """
    if len(during) < 10:
        raise SystemExit(
            f"Only {len(during)} calls were made while the graph was compiled. Set "
            "TORCH_MAX_BACKEND_CACHE_DIR and MODULAR_CACHE_DIR to empty folders."
        )
    series = {"before": before, "during": during, "served": served, "after": later}
    figures: dict[str, Any] = {f"{k}_ms": statistics.median(v) for k, v in series.items()}
    figures["calls"] = {k: len(v) for k, v in series.items()}
    figures["during_over_before"] = figures["during_ms"] / figures["before_ms"]
    return figures


def main(name: str, seconds: float = 20.0) -> None:
    """The command line; see the top of this file."""
    from torch_max_backend import max_backend

    case = MODELS[name]
    torch.manual_seed(0)
    model, inputs = case.build(), case.inputs(1, 128)
    options = {"background": True, "fallback": "error"}
    compiled = torch.compile(model, backend=max_backend, options=options)

    def compiling() -> bool:
        return any(t.name == background.THREAD for t in threading.enumerate())

    with torch.no_grad():
        eager = partial(model, **inputs)
        calls([eager], after(min(3.0, seconds)))
        (before,) = calls([eager], after(seconds))
        compiled(**inputs)
        start = time.perf_counter()
        # In turn, so that both meet the same moments of the compile.
        late = after(_LONGEST * seconds)
        during, served = calls(
            [eager, partial(compiled, **inputs)], lambda: not compiling() or late()
        )
        compile_s = None if compiling() else time.perf_counter() - start
        (later,) = calls([eager], after(seconds))
    print(json.dumps(report(before, during, served, later) | {"compile_s": compile_s}))


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
