"""Graphs compile for NVIDIA and AMD GPUs on a machine without one, from the tensors' device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.groups import compile_group


@compile_group("gpu", weight=10)
@pytest.mark.parametrize(
    ("api", "architecture", "evidence"),
    [
        pytest.param("cuda", "sm_90a", b"sm_90a", id="nvidia", marks=compile_group("gpu", 10)),
        pytest.param("hip", "gfx942", b"gfx942", id="amd", marks=compile_group("gpu", 10)),
    ],
)
def test_graph_compiles_for(api: str, architecture: str, evidence: bytes, tmp_path: Path) -> None:
    out = tmp_path / "graph.mef"
    command = [sys.executable, "-m", "tests.gpu.compile_for", api, architecture, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    assert evidence in out.read_bytes()
