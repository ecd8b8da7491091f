"""One process, one framework, one network in training: its first step, and the steps after it.

Run as ``python -m benchmarks.processes.training_alone CASE FRAMEWORK [SECONDS]``; FRAMEWORK is
``eager``, ``inductor`` or ``max``. A step is the loss, its gradients and AdamW's update; the loss
with the network, and the update, are compiled. Prints one line of JSON: seconds of wall and CPU
time of the first step (children included), median and least milliseconds of the others, the peak of
the process's memory in bytes, and the first loss.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from benchmarks.processes.first_call import cpu_seconds, peak_bytes
from benchmarks.processes.settled import settle
from benchmarks.processes.trainable import CASES
from benchmarks.processes.trainable_large import AUTOCAST_CASES, LARGE_CASES
from benchmarks.processes.training import started
from torch_max_backend.compat import dynamo

TRAINING_CASES = {**CASES, **LARGE_CASES, **AUTOCAST_CASES}
# Steps before the timed ones, after the tenth of which programs are compiled in the background.
_UNTIMED = 15


def main(name: str, framework: str, seconds: str = "3") -> None:
    """The command line; see the top of this file."""
    # Otherwise Dynamo leaves LSTMs to eager.
    with dynamo.config.patch(allow_rnn=True):
        run = started(TRAINING_CASES[name], framework)
        wall, cpu = time.perf_counter(), cpu_seconds()
        loss = run.step().item()
        wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
        times: list[float] = []
        if float(seconds):
            for _ in range(_UNTIMED):
                run.step()
            settle()
            for _ in range(_UNTIMED):
                run.step()
        end = time.perf_counter() + float(seconds)
        while (start := time.perf_counter()) < end:
            run.step()
            times.append(time.perf_counter() - start)
    report = {"wall_s": wall, "cpu_s": cpu, "loss": loss, "peak_bytes": peak_bytes()}
    if times:
        report["median_ms"] = statistics.median(times) * 1e3
        report["least_ms"] = min(times) * 1e3
    print(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])
