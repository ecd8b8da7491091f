"""Interventions with nnsight on models whose blocks are compiled."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.interpreters import run_python

ROOT = Path(__file__).resolve().parents[2]
USES = ["read", "overwrite", "invokes", "source", "cached", "generated", "gradients"]

pytestmark = [
    pytest.mark.xdist_group("nnsight"),
    pytest.mark.skipif(importlib.util.find_spec("nnsight") is None, reason="nnsight is missing"),
]


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """What ``nnsight_uses`` prints."""
    done = run_python("-m", "tests.patching.nnsight_uses", folder=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("use", USES)
def test_interventions_see_and_change_what_they_do_in_eager(found: Any, use: str) -> None:
    assert found[use] < 1e-4


def test_equal_blocks_are_one_compile_and_run_compiled_in_a_trace(found: Any) -> None:
    assert (found["graphs"], found["breaks"]) == (1, 0)


def test_a_wrapped_model_is_not_patched(found: Any) -> None:
    assert "Patch the model first" in found["refused"]
