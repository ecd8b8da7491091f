"""A benchmark in several frameworks at once, each in a process of its own, in short turns: for
machines whose speed changes within seconds.

Run as ``python -m benchmarks.processes.alternate CASE[,CASE...] [FRAMEWORK ...]``; CASE is one of
``alone``, ``decode:DTYPE``, ``generate:DTYPE`` or ``train:CASE`` (of ``training_alone``), FRAMEWORK
``eager``, ``inductor`` or ``steps``, and settings of this package may follow, without their prefix:
``steps+HUGE_PAGES=0``. Prints a line of JSON for each case: for each framework the median
milliseconds of a call (of a step in training, of a whole text in generation) over all turns, or why
it failed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.processes.settled import settle
from benchmarks.processes.worker import Worker, serve

# Turns of each framework, and seconds of a turn of several calls.
_TURNS, _SECONDS = 15, 0.4
# Calls before all turns; a text is a call for each token.
_UNTIMED, _UNTIMED_TEXTS = 15, 3


def _prepared(name: str, framework: str) -> Callable[[], Any]:
    """The call that is timed; it may compile when it is called first."""
    import torch

    from benchmarks.processes import alone

    torch.manual_seed(0)
    kind, _, of = name.rpartition(":")
    if kind == "generate":
        from benchmarks.processes.generate import generating

        return generating(of, framework)
    if kind == "train":
        from benchmarks.processes.training import started
        from benchmarks.processes.training_alone import TRAINING_CASES

        return started(TRAINING_CASES[of], "max" if framework == "steps" else framework).step
    if kind == "decode":
        from benchmarks.processes.decode import llama

        with torch.no_grad():
            function, inputs = alone.decoding(llama(of))
    else:
        function, inputs = alone.case(of)
    call = torch.no_grad()(alone.compiled(function, framework))
    return lambda: call(**inputs)


def _turns(name: str, framework: str) -> Iterator[list[float]]:
    """The milliseconds of the calls of each turn; the first one is not timed."""
    framework, *settings = framework.split("+")
    for setting in settings:
        variable, _, value = setting.partition("=")
        os.environ[f"TORCH_MAX_BACKEND_{variable}"] = value
    call = _prepared(name, framework)
    for _ in range(_UNTIMED_TEXTS if name.startswith("generate") else _UNTIMED):
        call()
    settle()
    yield []
    while True:
        found = [_milliseconds(call)]
        if found[0] < _SECONDS * 1e3:
            # After the others' turns caches were cold.
            found.clear()
            end = time.perf_counter() + _SECONDS
            while time.perf_counter() < end:
                found.append(_milliseconds(call))
        yield found


def _milliseconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def _measured(name: str, frameworks: Sequence[str]) -> dict[str, Any]:
    """What each framework takes for a case, or why it failed."""
    module = "benchmarks.processes.alternate"
    workers = {f: Worker(module, "--serve", name, f) for f in frameworks}
    times: dict[str, list[float]] = {f: [] for f in workers}
    failed: dict[str, Any] = {}
    for _ in range(_TURNS + 1):
        for framework, worker in workers.items():
            if framework in failed:
                continue
            answer = worker.ask({})
            if "failed" in answer:
                failed[framework] = answer
            else:
                times[framework] += answer["milliseconds"]
    for worker in workers.values():
        worker.end()
    return {f: failed[f] if f in failed else statistics.median(times[f]) for f in workers}


def main(names: str, *frameworks: str) -> None:
    """The command line; see the top of this file."""
    for name in names.split(","):
        found = _measured(name, frameworks or ("eager", "inductor", "steps"))
        print(json.dumps({"case": name} | found), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        turns = _turns(*sys.argv[2:])
        serve(lambda _: {"milliseconds": next(turns)})
    else:
        main(*sys.argv[1:])
