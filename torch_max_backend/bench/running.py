"""Processes in turns, and what they found."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torch_max_backend import environment
from torch_max_backend.bench.process import GENERATED, TRUTH
from torch_max_backend.bench.progress import Progress
from torch_max_backend.bench.spec import Spec
from torch_max_backend.cache.kernel_libraries import FOLDER

Row = dict[str, Any]


def run(spec: Spec, frameworks: Sequence[str], rounds: int) -> dict[str, Row]:
    """The figures of each framework, or why it has none.

    The first turn of each finds empty caches, but for the libraries of kernels and headers that a
    machine builds once; the later ones what the first left. Tells on stderr how far it is.

    Args:
        spec: What is measured.
        frameworks: Their names.
        rounds: Turns of each, at least 2.
    """
    found: dict[str, list[Row]] = {f: [] for f in frameworks}
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        caches = _caches(folder)
        progress = Progress(1 + rounds * len(frameworks))
        progress.begin(f"{spec.model}: float64, which the others are compared with")
        truth = _turn(TRUTH, spec, folder / "truth.pt", caches)
        progress.end()
        for turn in range(rounds):
            for framework in frameworks:
                if not any("failed" in row for row in found[framework]):
                    progress.begin(f"{spec.model}: {framework}, turn {turn + 1} of {rounds}")
                    path = folder / f"{framework}.pt"
                    found[framework].append(_turn(framework, spec, path, caches))
                progress.end()
        return {
            framework: _row(rows, folder / f"{framework}.pt", None if "failed" in truth else folder)
            for framework, rows in found.items()
        }


def _caches(folder: Path) -> Mapping[str, str]:
    """Empty caches for all frameworks; what a machine builds once is there already."""
    own = folder / "max"
    lend_libraries(environment.cache_dir(), own)
    return {
        "TORCH_MAX_BACKEND_CACHE_DIR": str(own),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }


def lend_libraries(cache: Path, into: Path) -> None:
    """Make a cache directory, and copy another one's libraries of kernels to it."""
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    built = cache / FOLDER
    if built.is_dir():
        # Without what another process is just building.
        ignored = shutil.ignore_patterns(".*")
        shutil.copytree(built, into / FOLDER, ignore=ignored, dirs_exist_ok=True)
        (into / FOLDER).chmod(0o700)


def _turn(framework: str, spec: Spec, results: Path, caches: Mapping[str, str]) -> Row:
    command = [sys.executable, "-m", "torch_max_backend.bench.process"]
    done = subprocess.run(
        [*command, framework, json.dumps(spec.plain()), str(results)],
        env={**os.environ, **caches},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"]
        return {"failed": lines[-1][:300]}
    row: Row = json.loads(done.stdout.strip().splitlines()[-1])
    return {"failed": row["unavailable"]} if "unavailable" in row else row


def _row(turns: Sequence[Row], results: Path, truth: Path | None) -> Row:
    for turn in turns:
        if "failed" in turn:
            return turn
    calls = [ms for turn in turns for ms in turn["calls"]]
    warm = turns[1:] or turns
    median = statistics.median(calls)
    row: Row = {
        "load_s": statistics.median(t["load"] for t in turns),
        "cold_s": turns[0]["first"],
        "warm_s": statistics.median(t["first"] for t in warm),
        "median_ms": median,
        "p90_ms": statistics.quantiles(calls, n=10)[-1] if len(calls) > 1 else median,
        "variation": statistics.pstdev(calls) / statistics.fmean(calls),
        "per_second": turns[0]["items"] / median * 1e3,
        "unit": turns[0]["unit"],
        "memory_mb": max(t["memory"] for t in turns),
        "calls_ms": calls,
    }
    if truth is not None:
        row |= _differences(results, truth / "truth.pt", row["unit"] == GENERATED)
    return row


def _differences(results: Path, truth: Path, tokens: bool = False) -> Row:
    """The largest and the mean difference from float64, or the share of tokens that are its."""
    ours, exact = torch.load(results), torch.load(truth)
    if [t.shape for t in ours] != [t.shape for t in exact] or not ours:
        return {}
    if tokens:
        return {"same_tokens": (ours[0] == exact[0]).double().mean().item()}
    both = [((a - b).abs(), b) for a, b in zip(ours, exact, strict=True) if a.numel()]
    count = sum(d.numel() for d, _ in both)
    return {
        "largest_difference": max(d.max().item() for d, _ in both),
        "mean_difference": sum(d.sum().item() for d, _ in both) / count,
    }
