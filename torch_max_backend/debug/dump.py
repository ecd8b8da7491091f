"""Everything about each compile, as files."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_max_backend import environment

if TYPE_CHECKING:
    from torch_max_backend.pipeline import Job

_folders: list[Path] = []


@contextmanager
def dump(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """In the body, each compile leaves a folder in ``folder`` (as all do in the directory that
    ``TORCH_MAX_BACKEND_DUMP`` names).

    It holds, for each graph, ``graphK.py`` (the ATen graph), ``graphK.json`` (its signature, key
    and what the key is made of); ``module.mlir`` (the MAX module), ``timing.json`` (seconds of each
    stage), ``artifact.mef`` (the compiled module, native code).

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


def keep(jobs: Sequence[Job], module: Any, artifact: bytes, into: Path) -> Path:
    """Write what is known of a compile into a new folder; returns it."""
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
    (place / "module.mlir").write_text(str(module.mlir_module))
    seconds = [job.clock.seconds for job in jobs]
    (place / "timing.json").write_text(json.dumps(seconds, indent=2))
    (place / "artifact.mef").write_bytes(artifact)
    return place
