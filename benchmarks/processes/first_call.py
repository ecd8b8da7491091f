"""One process, one framework, one model: how long the first call takes.

Run as ``python -m benchmarks.processes.first_call MODEL FRAMEWORK``; prints one line of JSON:
seconds of wall and CPU time (children included) from the compiled function's first call to its
result, peak memory in bytes, and the largest difference from eager relative to eager's largest
value.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.processes.models import MODELS


def compiled(
    function: Callable[..., Any],
    framework: str,
    fullgraph: bool = True,
    fallback: str = "error",
) -> Callable[..., Any]:
    """The function under ``framework``: eager, inductor, max, or max with one provider of matrix
    products: ``max:mojo``, ``max:mkl``, ``max:native`` (MAX's own).

    What ran in eager would not be measured; so that is an error unless ``fallback`` says otherwise.
    """
    if framework == "eager":
        return function
    name, _, bank = framework.partition(":")
    if name == "max":
        from torch_max_backend import max_backend

        options = {"bank": False if bank == "native" else bank or None, "fallback": fallback}
        return torch.compile(function, backend=max_backend, fullgraph=fullgraph, options=options)
    return torch.compile(function, backend=framework, fullgraph=fullgraph)


def cpu_seconds() -> float:
    """CPU time of this process and its ended children."""
    usages = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


def peak_bytes() -> int:
    """The most memory that this process had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(name: str, framework: str) -> None:
    """The command line; see the top of this file."""
    case = MODELS[name]
    torch.manual_seed(0)
    model = case.build()
    inputs = case.inputs(1, 128)
    with torch.no_grad():
        expected = case.result(model(**inputs))
        function = compiled(model, framework)
        before = peak_bytes()
        wall, cpu = time.perf_counter(), cpu_seconds()
        actual = case.result(function(**inputs))
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    error = ((actual - expected).abs().max() / expected.abs().max()).item()
    weights = sum(p.nbytes for p in model.parameters())
    peak = peak_bytes()
    report = {
        "wall_s": wall,
        "cpu_s": cpu,
        "error": error,
        "weights_bytes": weights,
        "peak_before_bytes": before,
        "peak_bytes": peak,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:3])
