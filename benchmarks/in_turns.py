"""Calls of a model in several frameworks, each in a process of its own, a call of each in turn.

Where other users of a machine slow it down for seconds at a time, frameworks that are measured one
after the other meet different machines. Here each round is a call to warm up and two that are
timed, of each framework; what is compared are the ratios of one round.

Run as ``python -m benchmarks.in_turns MODEL FRAMEWORK ... [--rounds N]``, with names as of
``python -m torch_max_backend bench``. Prints rows of a Markdown table: the median milliseconds of a
call, the least, and the median ratio to the first framework's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO, cast

# Calls before all others, by which programs are compiled and code for calls is written.
_WARM, _TIMED = 15, 2


def _work(model: str, framework: str) -> None:
    """A process: a line of seconds a call for each line that it reads."""
    import torch

    from torch_max_backend.bench.frameworks import FRAMEWORKS
    from torch_max_backend.bench.models import load
    from torch_max_backend.bench.spec import Spec

    subject = load(Spec(model))
    with torch.no_grad():
        made = FRAMEWORKS[framework](subject, "inference")
        for _ in range(_WARM):
            subject.call(made)
        print("ready", flush=True)
        for _ in sys.stdin:
            subject.call(made)
            begin = time.perf_counter()
            for _ in range(_TIMED):
                subject.call(made)
            print((time.perf_counter() - begin) / _TIMED, flush=True)


def _start(model: str, framework: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.in_turns", "--work", model, framework]
    # A team that spins after its call would slow down the next framework's.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    while line := _output(process).readline():
        if line == "ready\n":
            return process
    raise SystemExit(f"{framework} has ended: {process.wait()}")


def _output(process: subprocess.Popen[str]) -> IO[str]:
    return cast("IO[str]", process.stdout)


def _input(process: subprocess.Popen[str]) -> IO[str]:
    return cast("IO[str]", process.stdin)


def _measured(model: str, frameworks: Sequence[str], rounds: int) -> list[list[float]]:
    """Seconds of a call in each round, of each framework."""
    processes = [_start(model, framework) for framework in frameworks]
    times: list[list[float]] = [[] for _ in processes]
    for number in range(rounds):
        # Who comes after whom changes.
        order = range(len(processes))
        for i in order if number % 2 == 0 else reversed(order):
            print(file=_input(processes[i]), flush=True)
            times[i].append(float(_output(processes[i]).readline()))
    for process in processes:
        _input(process).close()
        process.wait()
    return times


def main() -> None:
    """The command line; see the top of this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("frameworks", nargs="+")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        _work(given.model, *given.frameworks)
        return
    times = _measured(given.model, given.frameworks, given.rounds)
    for framework, taken in zip(given.frameworks, times, strict=True):
        ratio = statistics.median(t / base for t, base in zip(taken, times[0], strict=True))
        middle, least = (1e3 * f(taken) for f in (statistics.median, min))
        print(f"| {given.model} | {framework} | {middle:.1f} | {least:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
