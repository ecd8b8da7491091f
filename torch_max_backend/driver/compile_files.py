"""Everything about each compile, as files."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_max_backend import environment
from torch_max_backend.errors import CacheError
from torch_max_backend.process.private_folders import warn_once

if TYPE_CHECKING:
    from torch_max_backend.driver.job import Job
    from torch_max_backend.engines.steps.planner.plan import Plan

_folders: list[Path] = []


@contextmanager
def dump(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """In the body, each compile leaves a folder in ``folder`` (as all do in the directory that
    ``TORCH_MAX_BACKEND_DUMP`` names).

    It holds, for each graph, ``graphK.py`` (the ATen graph), ``graphK.json`` (its signature, key
    and what the key is made of); ``timing.json`` (seconds of each stage); and what runs the graphs.
    Of a plan that is ``steps.txt`` (the plan as text) and ``artifact.plan`` (the same as data); of
    what MAX compiled ``module.mlir`` (the MAX module) and ``artifact.mef`` (the compiled module,
    native code).

    Args:
        folder: Made if need be.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    _folders.append(path)
    try:
        yield path
    finally:
        _folders.remove(path)


def folder() -> Path | None:
    """Where compiles leave files now, if anywhere."""
    return _folders[-1] if _folders else environment.dump_dir()


def keep(jobs: Sequence[Job], module: Any, artifact: Callable[[], bytes]) -> None:
    """Write what is known of a compile into a new folder where ``folder`` says; a folder that
    cannot be written to is logged once.

    Args:
        jobs: The graphs that were compiled.
        module: Their MAX module.
        artifact: Returns the compiled module.
    """
    _keep(jobs, lambda: {"module.mlir": str(module.mlir_module), "artifact.mef": artifact()})


def keep_plan(job: Job, plan: Plan) -> None:
    """The same, of a graph that was planned for the steps engine."""
    from torch_max_backend.engines.steps.plan_text import text_of
    from torch_max_backend.engines.steps.serialize import serialized

    _keep([job], lambda: {"steps.txt": text_of(plan), "artifact.plan": serialized(plan)})


def _keep(jobs: Sequence[Job], made: Callable[[], Mapping[str, str | bytes]]) -> None:
    into = folder()
    if into is None:
        return
    try:
        _write(jobs, made(), into)
    except (OSError, CacheError) as e:
        warn_once(into, "Compiles are not dumped into %s: %s", e)


def _write(jobs: Sequence[Job], made: Mapping[str, str | bytes], into: Path) -> None:
    place = into / f"{time.strftime('%H%M%S')}-{jobs[0].entry[:12]}"
    place.mkdir(parents=True, exist_ok=True)
    for k, job in enumerate(jobs):
        graph = job.trace.module.print_readable(print_output=False)
        (place / f"graph{k}.py").write_text(graph)
        about = {
            "key": job.entry,
            "components": dict(job.parts),
            "operators": job.operators,
            "options": dataclasses.asdict(job.options),
            "signature": dataclasses.asdict(job.trace.signature),
        }
        (place / f"graph{k}.json").write_text(json.dumps(about, indent=2))
    seconds = [job.clock.seconds for job in jobs]
    (place / "timing.json").write_text(json.dumps(seconds, indent=2))
    for name, content in made.items():
        (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
