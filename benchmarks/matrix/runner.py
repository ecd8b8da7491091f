"""Each phase of each model in a process of its own, and what is known of them in a file."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.processes.machine import machine
from torch_max_backend import environment
from torch_max_backend.bench.running import lend_libraries
from torch_max_backend.cache.kernel_libraries import FOLDER

# The cheapest first. "warm" is the first call of a process that finds the caches of "cold" filled.
PHASES = ("explain", "cold", "warm", "steady")
PACKAGES = ("torch", "max", "transformers", "timm", "torchvision", "diffusers")

_FOLDERS = {
    "TORCH_MAX_BACKEND_CACHE_DIR": "torch_max_backend",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "MODULAR_CACHE_DIR": "modular",
}

Reports = dict[str, dict[str, Any]]


def phase(name: str, which: str, caches: Path, limit: float) -> dict[str, Any]:
    """What a process says of one phase of a model: ``{"failed": why}`` if it crashes, or takes more
    than ``limit`` seconds.

    Args:
        name: The model.
        which: One of ``PHASES``.
        caches: The folder below which both compilers keep theirs.
        limit: Seconds.
    """
    environment = {**os.environ, **{k: str(caches / v) for k, v in _FOLDERS.items()}}
    # Modules are imported as compiled bytecode, as on any machine in use.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", f"{__package__}.one", which, name]
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        told, problems = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        # Compilers start processes of their own.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"failed": f"no end after {limit:.0f} s"}
    if process.returncode < 0:
        return {"failed": f"killed by {signal.Signals(-process.returncode).name}"}
    if process.returncode != 0:
        return {"failed": (problems.strip().splitlines() or ["no message"])[-1][:300]}
    return json.loads(told.strip().splitlines()[-1])


@dataclass
class Results:
    """What is known, in a file of JSON lines that only grows; the last line on a phase counts.

    Attributes:
        path: The file.
        reports: By model and phase.
        machines: By phase, where its last run was, when, beside what load, and how many models at
            once it took.
    """

    path: Path
    reports: dict[str, Reports] = field(default_factory=dict)
    machines: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __post_init__(self) -> None:
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                self._take(json.loads(line))

    def _take(self, record: dict[str, Any]) -> None:
        if "machine" in record:
            for which in record["phases"]:
                self.machines[which] = record["machine"]
        else:
            known = self.reports.setdefault(record["model"], {})
            known[record["phase"]] = record["report"]

    def _write(self, record: dict[str, Any]) -> None:
        with self._lock, self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
            self._take(record)

    def begin(self, phases: Collection[str], jobs: int) -> None:
        """Write down where, when and how what follows is measured, and how busy the machine is."""
        now = {"date": date.today().isoformat(), "load": os.getloadavg()[0], "jobs": jobs}
        self._write({"machine": {**machine(*PACKAGES), **now}, "phases": list(phases)})

    def add(self, model: str, which: str, report: dict[str, Any]) -> None:
        """Write down what was found."""
        self._write({"model": model, "phase": which, "report": report})

    def missing(self, model: str, phases: Iterable[str]) -> list[str]:
        """Which phases are not known, or failed."""
        known = self.reports.get(model, {})
        return [p for p in phases if "failed" in known.get(p, {"failed": ""})]


@contextmanager
def _folder(caches: Path | None, name: str) -> Iterator[Path]:
    """Where a model's caches are."""
    if caches is None:
        with tempfile.TemporaryDirectory(prefix="matrix") as folder:
            yield Path(folder)
    else:
        folder = caches / name.replace("/", "-")
        folder.mkdir(parents=True, exist_ok=True)
        yield folder


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        shutil.rmtree(entry)


_lending = threading.Lock()


def _cold(name: str, folder: Path, limit: float, libraries: Path) -> dict[str, Any]:
    """The first call, where caches are empty but for the libraries of kernels that the model needs,
    which a machine builds once: where one was not there, it is done again.

    Args:
        name: The model.
        folder: Of its caches.
        limit: Seconds.
        libraries: A cache directory; libraries that are built are kept there.
    """
    own = folder / _FOLDERS["TORCH_MAX_BACKEND_CACHE_DIR"]
    while True:
        _empty(folder)
        with _lending:
            lend_libraries(libraries, own)
        before = _built(own)
        report = phase(name, "cold", folder, limit)
        if "failed" in report or _built(own) == before:
            return report
        with _lending:
            lend_libraries(own, libraries)


def _built(cache: Path) -> set[str]:
    return {path.name for path in (cache / FOLDER).glob("*.so")}


def run(
    names: Sequence[str],
    phases: Collection[str],
    results: Results,
    *,
    jobs: int = 1,
    limit: float = 900.0,
    minutes: float = float("inf"),
    again: bool = False,
    caches: Path | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Find out what is missing, and write it down at once.

    Args:
        names: Models.
        phases: Of ``PHASES``.
        results: What is known.
        jobs: How many models at once.
        limit: Seconds of one phase.
        minutes: After these, nothing more is begun.
        again: Find out what is known as well.
        caches: The compilers' caches are kept below this folder, so that a later run of "warm" or
            "steady" compiles nothing; else they are gone when the model is done.
        tell: Is given a line on each phase that ends.
    """
    end = time.monotonic() + 60 * minutes
    results.begin(phases, jobs)

    def model(name: str, libraries: Path) -> None:
        with _folder(caches, name) as folder:
            filled = any(folder.iterdir())
            wanted = [p for p in PHASES if p in phases]
            for which in wanted if again else results.missing(name, wanted):
                if time.monotonic() > end:
                    return
                if which == "cold" or (which == "warm" and not filled):
                    report = _cold(name, folder, limit, libraries)
                if which != "cold":
                    report = phase(name, which, folder, limit)
                results.add(name, which, report)
                tell(f"{name} {which} {json.dumps(report)[:200]}")
                filled = filled or which == "cold"
                if "failed" in report:
                    return

    with tempfile.TemporaryDirectory(prefix="libraries") as made, ThreadPoolExecutor(jobs) as pool:
        lend_libraries(environment.cache_dir(), Path(made))
        for _ in pool.map(lambda name: model(name, Path(made)), names):
            pass
