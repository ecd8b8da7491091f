"""Single operators beside inductor and eager PyTorch: forward, and with gradients.

    uv run python -m benchmarks.operators    # everything
    uv run python -m benchmarks.operators "upsample*" --sizes large

Each framework has a process of its own for every few operators. A figure is the median of many
short turns, in which the processes alternate: what else the machine's memory is asked for changes
within seconds. Inductor takes part at the small size, where its whole call is compared with ours.
At the large one Dynamo alone does, which runs eager PyTorch's operators: what it takes more than
these, every backend does.
Writes ``operators.json``, by processor, and the tables of ``operators.md`` beside this file. It
wants an idle machine.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.processes.operators import ROWS, cases
from benchmarks.processes.results import Results, heading
from benchmarks.processes.worker import Worker
from benchmarks.steps import mean

FRAMEWORKS = {"small": ("eager", "inductor", "max"), "large": ("eager", "dynamo", "max")}
# Operators of one process.
_TOGETHER = 10
_MODULE = "benchmarks.processes.operators"
_PASSES = {"forward": "forward", "both": "with gradients"}


def measure(names: Sequence[str], size: str, turns: int, seconds: float) -> dict[str, Any]:
    """The figures of operators by name and framework.

    Args:
        names: The operators.
        size: ``small`` or ``large``.
        turns: Of each framework, for each figure.
        seconds: Of a turn.
    """
    workers = {framework: Worker(_MODULE, framework, size) for framework in FRAMEWORKS[size]}
    found: dict[str, Any] = {}
    for name in names:
        of: dict[str, Any] = {framework: {} for framework in workers}
        has = {framework: worker.ask({"prepare": name}) for framework, worker in workers.items()}
        for key in _PASSES:
            took: dict[str, list[float]] = {f: [] for f in has if key in has[f].get("passes", ())}
            for _ in range(turns):
                for framework in took:
                    answer = workers[framework].ask({"time": key, "seconds": seconds})
                    if "failed" in answer:
                        has[framework] = answer
                    else:
                        took[framework].append(answer["milliseconds"])
            of |= {f: of[f] | {key: statistics.median(t)} for f, t in took.items() if t}
        for framework, answer in has.items():
            if "failed" in answer:
                of[framework]["failed"] = answer["failed"]
        found[name] = of
    for worker in workers.values():
        worker.end()
    return found


def tables(results: Mapping[str, Any]) -> str:
    """The results of one processor as Markdown."""
    lines = heading(results["machine"])[:-1]
    for size, found in results["sizes"].items():
        to = "eager" if size == "large" else "inductor"
        lines += [
            "",
            f"### {size.capitalize()} sizes",
            "",
            "Median microseconds of a whole call.",
            "",
        ]
        kinds = [f"{f}, {p}" for p in _PASSES.values() for f in (*FRAMEWORKS[size], f"max/{to}")]
        lines += [f"| operator | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
        ratios: dict[str, list[float]] = {key: [] for key in _PASSES}
        for name, of in found.items():
            cells = []
            for key in _PASSES:
                times = [of.get(f, {}).get(key, math.nan) for f in FRAMEWORKS[size]]
                ratio = of.get("max", {}).get(key, math.nan) / of.get(to, {}).get(key, math.nan)
                ratios[key].append(ratio)
                cells += ["-" if math.isnan(t) else f"{t * 1e3:.1f}" for t in times]
                cells.append("-" if math.isnan(ratio) else f"{ratio:.2f}")
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines.append("")
        for key, what in _PASSES.items():
            lines.append(f"Geometric mean of max/{to}, {what}: {mean(ratios[key])}.")
        failed = [
            f"- {name}, {f}: {r['failed']}"
            for name, of in found.items()
            for f, r in of.items()
            if "failed" in r
        ]
        lines += ["", "Failed:", "", *failed] if failed else []
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"])
    parser.add_argument("--sizes", nargs="*", default=list(ROWS))
    parser.add_argument("--seconds", type=float, default=0.04, help="of a turn")
    parser.add_argument("--turns", type=int, default=9)
    given = parser.parse_args()
    results = Results("operators", "torch", "max")
    measured = results.here.setdefault("sizes", {})
    for size in given.sizes:
        names = [
            name
            for name, _ in cases(size)
            if any(fnmatch.fnmatchcase(name, p) for p in given.patterns)
        ]
        for k in range(0, len(names), _TOGETHER):
            found = measure(names[k : k + _TOGETHER], size, given.turns, given.seconds)
            measured.setdefault(size, {}).update(found)
            results.keep()
            print(json.dumps(found), flush=True)
    results.publish(tables)


if __name__ == "__main__":
    main()
