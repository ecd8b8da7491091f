"""Training steps beside inductor and eager PyTorch: the first step, the others, memory.

    uv run python -m benchmarks.training    # everything: about an hour on 2 cores
    uv run python -m benchmarks.training cnn resnet18_4 --repeats 1 --seconds 2

Each framework has a process of its own, in turns. "Cold" finds the libraries of kernels and the
precompiled headers of inductor, and nothing else; "warm" finds what "cold" left. Writes
``training.json``, by processor, and the tables of ``training.md`` beside this file. It wants an
idle machine.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.processes.results import Results, heading
from benchmarks.processes.trainable_large import AUTOCAST_CASES
from benchmarks.processes.training_alone import TRAINING_CASES
from benchmarks.steps import Report, failures, fresh, mean, median, process

FRAMEWORKS = ("inductor", "max", "eager")
_MODULE = "benchmarks.processes.training_alone"


def measure(case: str, repeats: int, seconds: float, prepared: Path) -> Any:
    """The figures of a case by phase and framework."""

    def run(framework: str, seconds: float, caches: Path) -> Report:
        return process([_MODULE, case, framework, str(seconds)], caches)

    cold: dict[str, list[Report]] = {f: [] for f in FRAMEWORKS[:2]}
    warm: dict[str, list[Report]] = {f: [] for f in FRAMEWORKS}
    for f in FRAMEWORKS[:2]:
        run(f, 0, prepared)  # builds libraries and headers
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            caches = fresh(prepared, Path(folder))
            for f in cold:
                cold[f].append(run(f, 0, caches))
            for f in warm:
                warm[f].append(run(f, seconds, caches))
    return {
        "turns": repeats,
        "cold": {f: median(r) for f, r in cold.items()},
        "warm": {f: median(r) for f, r in warm.items()},
    }


def steady(case: str, repeats: int, seconds: float, before: Any) -> Any:
    """The figures of a case with what caches there are: of its steps alone. The others stay as they
    were ``before``."""
    warm: dict[str, list[Report]] = {f: [] for f in FRAMEWORKS}
    for _ in range(repeats):
        for f in warm:
            warm[f].append(process([_MODULE, case, f, str(seconds)], None))
    # The first steps found what a fresh measurement did not have.
    keys = ("median_ms", "least_ms", "loss", "failed")
    reports = {f: {k: v for k, v in median(r).items() if k in keys} for f, r in warm.items()}
    before = before or {"cold": {f: {} for f in FRAMEWORKS[:2]}, "warm": {}}
    merged = {f: {**before["warm"].get(f, {}), **r} for f, r in reports.items()}
    return {"turns": repeats, "cold": before["cold"], "warm": merged}


def _ratio(of: Mapping[str, Report], key: str, to: str) -> float:
    try:
        return of["max"][key] / of[to][key]
    except KeyError:
        return float("nan")


def _cell(report: Report, key: str, scale: float, digits: int) -> str:
    return f"{report[key] * scale:.{digits}f}" if key in report else "-"


def tables(results: Mapping[str, Any]) -> str:
    """The results of one processor as Markdown."""
    cases = results["cases"]
    lines = [*heading(results["machine"]), "### Steps", ""]
    lines += ["Median milliseconds of a whole step.", ""]
    lines += ["| case | turns | eager | inductor | max | max/eager | max/inductor |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, found in cases.items():
        of = found["warm"]
        cells = [_cell(of[f], "median_ms", 1, 1) for f in ("eager", "inductor", "max")]
        cells += [f"{_ratio(of, 'median_ms', to):.2f}" for to in ("eager", "inductor")]
        lines.append(f"| {name} | {found['turns']} | {' | '.join(cells)} |")
    for to in ("eager", "inductor"):
        means = []
        for kind, autocast in (("float32", False), ("autocast", True)):
            warm = [f["warm"] for n, f in cases.items() if (n in AUTOCAST_CASES) == autocast]
            if warm:
                means.append(f"{mean([_ratio(of, 'median_ms', to) for of in warm])} ({kind})")
        lines += ["", f"Geometric mean of max/{to}: {', '.join(means)}."]
    if any(any(found["cold"].values()) for found in cases.values()):
        lines += _first_steps(cases)
    return "\n".join(lines + failures(cases)) + "\n"


def _first_steps(cases: Mapping[str, Any]) -> list[str]:
    lines = ["", "### First step", ""]
    lines += ["CPU seconds of the first step in a new process; peak resident megabytes.", ""]
    lines += ["| case | cold inductor | cold max | ratio | warm inductor | warm max | ratio "]
    lines[-1] += "| MB cold inductor | max | MB warm inductor | max |"
    lines += ["|---|---|---|---|---|---|---|---|---|---|---|"]
    for name, found in cases.items():
        if not any(found["cold"].values()):
            continue
        cells = []
        for phase in ("cold", "warm"):
            of = found[phase]
            cells += [_cell(of[f], "cpu_s", 1, 1) for f in FRAMEWORKS[:2]]
            cells.append(f"{_ratio(of, 'cpu_s', 'inductor'):.2f}")
        for phase in ("cold", "warm"):
            cells += [_cell(found[phase][f], "peak_bytes", 1e-6, 0) for f in FRAMEWORKS[:2]]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(TRAINING_CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--steady", action="store_true", help="steps alone, with your own caches")
    options = parser.parse_args()
    results = Results("training", "torch", "max")
    measured = results.here.setdefault("cases", {})
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            if options.steady:
                before = measured.get(case)
                found = steady(case, options.repeats, options.seconds, before)
            else:
                found = measure(case, options.repeats, options.seconds, Path(folder))
            measured[case] = found
            results.keep()
            ratios = [f"{_ratio(found['warm'], 'median_ms', to):.2f}" for to in FRAMEWORKS[::2]]
            print(case, *ratios, f"{_ratio(found['cold'], 'cpu_s', 'inductor'):.2f}", flush=True)
    results.publish(tables)


if __name__ == "__main__":
    main()
