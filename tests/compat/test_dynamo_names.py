"""Dynamo's logs hold the names of functions where they are on, and cost nothing where not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import torch, torch._dynamo.funcname_cache as names
from torch_max_backend import max_backend

class Outer:
    def inner(self, x):
        return x.sin() + 1

@torch.compile(backend=max_backend)
def function(x):
    return Outer().inner(x)

function(torch.ones(4))
print("files read:", len(names.cache))
"""


@pytest.mark.parametrize("logs", ["", "trace_call", "trace_source"])
def test_names_are_looked_for_if_a_log_wants_them(logs: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_PROGRAM)
    run = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | ({"TORCH_LOGS": logs} if logs else {}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("(Outer.inner)" in run.stderr) == bool(logs)
    assert ("files read: 0" in run.stdout) == (not logs)
