"""The steps engine beside inductor and eager PyTorch: first calls, calls, memory.

    uv run python -m benchmarks.steps    # everything: about two hours on 2 cores
    uv run python -m benchmarks.steps bert resnet18 --repeats 1 --seconds 2

Each framework has a process of its own, in turns. "Cold" finds the libraries of kernels and the
precompiled headers of inductor, and nothing else; "warm" finds what "cold" left. Writes
``steps.json``, by processor, and the tables of ``steps.md`` beside this file. It wants an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes.alone import CASES
from benchmarks.processes.results import Results, heading
from torch_max_backend.bench.running import lend_libraries

FRAMEWORKS = ("inductor", "steps", "eager")

Report = Mapping[str, Any]


def run(case: str, framework: str, seconds: float, threads: int, caches: Path) -> Report:
    """What a process says of a case, or why it failed."""
    module = "benchmarks.processes.alone"
    return process([module, case, framework, str(seconds), str(threads)], caches)


def process(module: Sequence[str], caches: Path | None) -> Report:
    """What a process that runs a module with arguments says, or why it failed.

    Args:
        module: Its name and the arguments.
        caches: The folder of its caches, or ``None`` for the user's own.
    """
    environment = dict(os.environ)
    if caches is not None:
        environment["TORCH_MAX_BACKEND_CACHE_DIR"] = str(caches / "torch_max_backend")
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [sys.executable, "-m", *module], env=environment, capture_output=True, text=True
    )
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def fresh(prepared: Path, into: Path) -> Path:
    """Empty caches but for the libraries and headers of ``prepared``."""
    lend_libraries(prepared / "torch_max_backend", into / "torch_max_backend")
    headers = "inductor/precompiled_headers"
    if (prepared / headers).is_dir():
        shutil.copytree(prepared / headers, into / headers)
    return into


def median(reports: Sequence[Report]) -> Report:
    """The median of each figure, or the first failure."""
    for report in reports:
        if "failed" in report:
            return report
    return {k: statistics.median(r[k] for r in reports) for k in reports[0]}


def measure(case: str, repeats: int, seconds: float, threads: int, prepared: Path) -> Any:
    """The figures of a case by phase and framework."""
    cold: dict[str, list[Report]] = {f: [] for f in FRAMEWORKS}
    warm: dict[str, list[Report]] = {f: [] for f in FRAMEWORKS}
    for f in FRAMEWORKS[:2]:
        run(case, f, 0.2, threads, prepared)  # builds libraries and headers
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            caches = fresh(prepared, Path(folder))
            for f in FRAMEWORKS[:2]:
                cold[f].append(run(case, f, 0.2, threads, caches))
            for f in FRAMEWORKS:
                warm[f].append(run(case, f, seconds, threads, caches))
    return {
        "turns": repeats,
        "cold": {f: median(r) for f, r in cold.items() if r},
        "warm": {f: median(r) for f, r in warm.items() if r},
    }


def _ratio(of: Mapping[str, Report], key: str, to: str = "inductor") -> float:
    try:
        return of["steps"][key] / of[to][key]
    except KeyError:
        return math.nan


def mean(ratios: Sequence[float]) -> str:
    """The geometric mean of those that are known."""
    found = [r for r in ratios if not math.isnan(r)]
    return f"{statistics.geometric_mean(found):.2f}" if found else "-"


def failures(cases: Mapping[str, Any]) -> list[str]:
    """The lines that tell of processes that failed, if there are any."""
    failed = [
        f"- {name}, {phase}, {f}: {r['failed']}"
        for name, found in cases.items()
        for phase in ("cold", "warm")
        for f, r in found[phase].items()
        if "failed" in r
    ]
    return ["", "### Failed", "", *failed] if failed else []


def tables(results: Mapping[str, Any]) -> str:
    """The results of one processor as Markdown."""
    cases = results["cases"]
    threads = results["threads"] or "all"
    more = f"; threads: {threads}. Medians of each case's turns"
    lines = [*heading(results["machine"], more), "### First call", ""]
    lines += [
        "CPU seconds of the first call in a new process (children included).",
        "",
        "| case | turns | cold inductor | cold steps | ratio "
        "| warm inductor | warm steps | ratio | error |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in cases.items():
        cells = []
        for phase in ("cold", "warm"):
            of = found[phase]
            cells += [f"{of[f]['cpu_s']:.1f}" if "cpu_s" in of[f] else "-" for f in FRAMEWORKS[:2]]
            cells.append(f"{_ratio(of, 'cpu_s'):.2f}")
        error = found["warm"]["steps"].get("error", math.nan)
        lines.append(f"| {name} | {found.get('turns', 1)} | {' | '.join(cells)} | {error:.0e} |")
    lines += ["", "### Calls", "", "Median milliseconds of a call.", ""]
    lines += ["| case | eager | inductor | steps | steps/inductor | steps/eager |"]
    lines += ["|---|---|---|---|---|---|"]
    for name, found in cases.items():
        of = found["warm"]
        times = [f"{of[f]['median_ms']:.3f}" if "median_ms" in of[f] else "-" for f in _ORDER]
        ratios = [f"{_ratio(of, 'median_ms', to):.2f}" for to in ("inductor", "eager")]
        lines.append(f"| {name} | {' | '.join(times + ratios)} |")
    for to in ("inductor", "eager"):
        ratios = [_ratio(found["warm"], "median_ms", to) for found in cases.values()]
        lines.append(f"\nGeometric mean of steps/{to}: {mean(ratios)}.")
    lines += ["", "### Memory", "", "Peak resident megabytes of the process.", ""]
    lines += ["| case | cold inductor | cold steps | warm inductor | warm steps |"]
    lines += ["|---|---|---|---|---|"]
    for name, found in cases.items():
        cells = [
            f"{found[phase][f]['peak_bytes'] / 1e6:.0f}" if "peak_bytes" in found[phase][f] else "-"
            for phase in ("cold", "warm")
            for f in FRAMEWORKS[:2]
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines + failures(cases)) + "\n"


_ORDER = ("eager", "inductor", "steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    options = parser.parse_args()
    results = Results("steps", "torch", "max")
    measured = results.here.setdefault("cases", {})
    results.here["threads"] = options.threads
    with tempfile.TemporaryDirectory() as folder:
        for case in options.cases:
            found = measure(case, options.repeats, options.seconds, options.threads, Path(folder))
            measured[case] = found
            results.keep()
            print(case, f"{_ratio(found['warm'], 'median_ms'):.2f}", flush=True)
    results.publish(tables)


if __name__ == "__main__":
    main()
