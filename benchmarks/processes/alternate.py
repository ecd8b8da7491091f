"""A case of ``alone`` in several frameworks at once, each in a process of its own, in short turns:
for machines whose speed changes within seconds.

Run as ``python -m benchmarks.processes.alternate CASE [FRAMEWORK ...]``. Prints one line of JSON:
for each framework the median milliseconds of a call over all turns.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

# Turns of each framework, and seconds of a turn.
_TURNS, _SECONDS = 15, 0.4


def serve(name: str, framework: str) -> None:
    """Be the process of one framework: a turn for each line of input."""
    import torch

    from benchmarks.processes.alone import case, compiled

    torch.manual_seed(0)
    function, inputs = case(name)
    call = compiled(function, framework)
    with torch.no_grad():
        for _ in range(15):
            call(**inputs)
        print("ready", flush=True)
        for _ in sys.stdin:
            call(**inputs)
            found = []
            end = time.perf_counter() + _SECONDS
            while (start := time.perf_counter()) < end:
                call(**inputs)
                found.append((time.perf_counter() - start) * 1e3)
            print(json.dumps(found), flush=True)


def main(name: str, *frameworks: str) -> None:
    """The command line; see the top of this file."""
    found: dict[str, list[float]] = {f: [] for f in frameworks or ("eager", "inductor", "steps")}
    command = [sys.executable, "-m", "benchmarks.processes.alternate", "--serve", name]
    pipe = subprocess.PIPE
    processes = {
        f: subprocess.Popen(
            [*command, f], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )
        for f in found
    }

    def answer(framework: str) -> str:
        output = processes[framework].stdout
        assert output is not None
        while (line := output.readline()) and line[0] not in "r[":
            pass
        return line

    for framework in found:
        answer(framework)
    for _ in range(_TURNS):
        for framework, times in found.items():
            asked = processes[framework].stdin
            assert asked is not None
            print("", file=asked, flush=True)
            times += json.loads(answer(framework))
    for process in processes.values():
        process.communicate()
    print(json.dumps({"case": name} | {f: statistics.median(t) for f, t in found.items()}))


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
