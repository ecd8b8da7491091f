"""A training step of GPT-2 small in two processes, beside inductor and eager PyTorch.

    uv run python -m benchmarks.distributed    # about ten minutes on 2 cores

Each framework has processes of its own, in turns, on one thread each, with gloo; the model is
compiled inside DistributedDataParallel. Writes ``distributed.json``, by processor, and the table of
``distributed.md`` beside this file. It wants an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.processes.results import Results, heading

FRAMEWORKS = ("eager", "inductor", "max")


def measure(framework: str, steps: int, processes: int) -> Any:
    """What the first process reports."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launch, "--nproc-per-node", str(processes), "-m", "benchmarks.processes.ddp"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, framework, str(steps)], stdout=subprocess.PIPE, text=True, env=environment
    )
    done.check_returncode()
    return json.loads(done.stdout.splitlines()[-1])


def section(results: Any) -> str:
    """The results of one processor as Markdown."""
    found = {f: [turn[f] for turn in results["turns"]] for f in FRAMEWORKS}
    known = results["machine"]
    step = {f: statistics.median(statistics.median(r["step_ms"]) for r in found[f]) for f in found}
    rows = [
        *heading(known, f"; {len(results['turns'])} turns"),
        "| | step, ms | of eager's | of inductor's | first step, s | last loss - eager's |",
        "|---|---|---|---|---|---|",
    ]
    last = found["eager"][0]["losses"][-1]
    for f, reports in found.items():
        first = statistics.median(r["first_ms"] for r in reports) / 1e3
        cells = (f"{step[f]:.0f}", f"{step[f] / step['eager']:.2f}")
        cells += (f"{step[f] / step['inductor']:.2f}", f"{first:.1f}")
        cells += (f"{reports[0]['losses'][-1] - last:+.1e}",)
        rows.append(f"| {f} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    turns = [
        {f: measure(f, arguments.steps, arguments.processes) for f in FRAMEWORKS}
        for _ in range(arguments.turns)
    ]
    results = Results("distributed", "torch", "max", "transformers")
    results.here["turns"] = turns
    results.publish(section)


if __name__ == "__main__":
    main()
