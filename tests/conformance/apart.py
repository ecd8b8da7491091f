"""Checks in a process of their own, so that a crash is found and counted."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Done:
    """What a process that checked some tasks left.

    Attributes:
        results: What it printed of each, one line of JSON.
        begun: What it printed behind "# " before it ran one, of the last it ran; ``None`` if it
            ran none.
        failure: How it ended; ``None`` if it ended well.
    """

    results: list[dict[str, Any]]
    begun: Any
    failure: str | None


def run_apart(module: str, tasks: Sequence[Any], arguments: Sequence[str] = ()) -> Done:
    """Have ``python -m module --tasks FILE`` check tasks."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(tasks, file)
        file.flush()
        command = [sys.executable, "-m", module, "--tasks", file.name, *arguments]
        done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    begun = [json.loads(line.removeprefix("# ")) for line in lines if line.startswith("# ")]
    failure = None
    if done.returncode != 0:
        said = " ".join(done.stderr.strip().splitlines()[-3:])
        failure = f"the process ended with {done.returncode}: {said}"
    return Done(
        [json.loads(line) for line in lines if line.startswith("{")],
        begun[-1] if begun else None,
        failure,
    )
