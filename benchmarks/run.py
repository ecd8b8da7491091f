"""Cold compile, warm start, steady state and call overhead beside eager and inductor.

    uv run python -m benchmarks.run    # everything: about an hour on 2 cores
    uv run python -m benchmarks.run gpt2 --skip-cold --repeats 1 --seconds 10

Each first call is a process of its own; "cold" empties every cache of both compilers first,
"warm" finds them filled. Processes of the two compilers alternate. Writes ``results.json`` and the
tables of ``README.md`` beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes.machine import machine

HERE = Path(__file__).parent
BYTECODE = Path(tempfile.gettempdir()) / "torch_max_backend-bench-bytecode"
MODELS = ("gpt2", "llama", "bert", "esm", "vit", "resnet18", "convnext_atto")
COMPILERS = ("inductor", "max")


def run(module: str, *arguments: str, caches: Path, cold: bool) -> dict[str, Any]:
    """Run a benchmark module in a fresh process whose caches are below ``caches``; MAX's own cache
    only if the first run is to be ``cold``."""
    folders = {
        "TORCH_MAX_BACKEND_CACHE_DIR": "torch_max_backend",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
    }
    if cold:
        folders["MODULAR_CACHE_DIR"] = "modular"
    environment = {**os.environ, **{k: str(caches / v) for k, v in folders.items()}}
    # Modules are imported as compiled bytecode, as on any machine in use.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    command = [sys.executable, "-m", f"benchmarks.processes.{module}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def median(reports: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure."""
    for report in reports:
        if "failed" in report:
            return report
    return {k: statistics.median(r[k] for r in reports) for k in reports[0]}


def measure(
    name: str, repeats: int, seconds: float, cold: bool, more: Sequence[str]
) -> dict[str, Any]:
    """All figures of one model."""
    figures: dict[str, Any] = {}
    if name != "add8" and cold:
        runs: dict[str, list[dict[str, Any]]] = {c: [] for c in COMPILERS}
        for _ in range(repeats - 1):
            with tempfile.TemporaryDirectory() as folder:
                for c in COMPILERS:
                    runs[c].append(run("first_call", name, c, caches=Path(folder), cold=True))
    with tempfile.TemporaryDirectory() as folder:
        caches = Path(folder)
        if name != "add8":
            filled = {c: run("first_call", name, c, caches=caches, cold=cold) for c in COMPILERS}
            if cold:
                figures["cold"] = {c: median([*runs[c], filled[c]]) for c in COMPILERS}
            warm: dict[str, list[dict[str, Any]]] = {c: [] for c in COMPILERS}
            for _ in range(repeats):
                for compiler in COMPILERS:
                    report = run("first_call", name, compiler, caches=caches, cold=cold)
                    warm[compiler].append(report)
            figures["warm"] = {c: median(reports) for c, reports in warm.items()}
        steady = [
            run("steady", name, str(seconds), *more, caches=caches, cold=cold)
            for _ in range(repeats)
        ]
        figures["steady_ms"] = median(steady)
    return figures


def ratio(a: float, b: float) -> str:
    return f"{a / b:.2f}"


def tables(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    models = results["models"]
    lines = [
        "## First call",
        "",
        "Seconds from the compiled function's first call to its result, in a new process. CPU",
        "seconds include child processes. Batch 1, 128 tokens or one 224x224 image, float32.",
        "",
        "| model | cold inductor cpu / wall | cold max cpu / wall | warm inductor cpu / wall "
        "| warm max cpu / wall | warm max/inductor (cpu) | warm/cold max (cpu) | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, figures in models.items():
        if "warm" not in figures:
            continue
        cells = [name]
        for kind in ("cold", "warm"):
            for compiler in COMPILERS:
                report = figures.get(kind, {}).get(compiler, {"failed": "not measured"})
                cells.append(
                    report["failed"]
                    if "failed" in report
                    else f"{report['cpu_s']:.1f} / {report['wall_s']:.1f}"
                )
        warm, cold = figures["warm"], figures.get("cold", {})
        ours = warm["max"].get("cpu_s")
        theirs = warm["inductor"].get("cpu_s")
        ours_cold = cold.get("max", {}).get("cpu_s")
        cells.append(ratio(ours, theirs) if ours and theirs else "-")
        cells.append(ratio(ours, ours_cold) if ours and ours_cold else "-")
        cells.append(f"{warm['max']['error']:.0e}" if "error" in warm["max"] else "-")
        lines.append("| " + " | ".join(cells) + " |")
    lines += [
        "",
        "## Steady state",
        "",
        "Median milliseconds a call, in turns in one process (2 threads each).",
        "`add8` is `x + y` on 8x8: the overhead of a call.",
        "",
        "The last column is MAX with its own products, a kernel for each shape (`bank=False`).",
        "",
        "| model | eager | inductor | max | max/eager | max/inductor | max, own products |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, figures in models.items():
        steady = figures["steady_ms"]
        if "failed" in steady:
            lines.append(f"| {name} | {steady['failed']} | | | | | |")
            continue
        e, i, m = steady["eager"], steady["inductor"], steady["max"]
        digits = 4 if name == "add8" else 1
        lines.append(
            f"| {name} | {e:.{digits}f} | {i:.{digits}f} | {m:.{digits}f} "
            f"| {ratio(m, e)} | {ratio(m, i)} "
            f"| {f'{native:.1f}' if (native := steady.get('max:native')) else '-'} |"
        )
    lines += [
        "",
        "## Memory",
        "",
        "Growth of the process's peak resident memory by the warm first call, beside the weights.",
        "",
        "| model | weights MB | inductor MB | max MB |",
        "|---|---|---|---|",
    ]
    for name, figures in models.items():
        if "warm" not in figures or "failed" in figures["warm"]["max"]:
            continue
        growth = [
            (figures["warm"][c]["peak_bytes"] - figures["warm"][c]["peak_before_bytes"]) / 1e6
            for c in COMPILERS
        ]
        weights = figures["warm"]["max"]["weights_bytes"] / 1e6
        lines.append(f"| {name} | {weights:.0f} | {growth[0]:.0f} | {growth[1]:.0f} |")
    machine = results["machine"]
    lines += ["", f"Measured on {machine['cpu']}, {machine['cores']} cores, Linux; versions: "]
    lines[-1] += ", ".join(f"{k} {v}" for k, v in machine["versions"].items()) + "."
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=[*MODELS, "add8"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each steady-state run")
    parser.add_argument(
        "--skip-cold", action="store_true", help="fill from MAX's own cache, record no cold run"
    )
    parser.add_argument(
        "--native", action="store_true", help="time MAX's own matrix products too (slow compiles)"
    )
    given = parser.parse_args()
    more = ["max:native"] if given.native else []
    path = HERE / "results.json"
    results = json.loads(path.read_text()) if path.exists() else {"models": {}}
    results["machine"] = machine("torch", "max", "transformers", "torchvision", "timm")
    if not BYTECODE.exists():
        for compiler in COMPILERS:
            with tempfile.TemporaryDirectory() as folder:
                run("first_call", "convnext_atto", compiler, caches=Path(folder), cold=True)
    for name in given.models:
        figures = measure(name, given.repeats, given.seconds, not given.skip_cold, more)
        results["models"].setdefault(name, {}).update(figures)
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(figures), flush=True)
    readme = HERE / "README.md"
    head = readme.read_text().split("<!-- tables -->")[0]
    readme.write_text(head + "<!-- tables -->\n\n" + tables(results) + "\n")


if __name__ == "__main__":
    main()
