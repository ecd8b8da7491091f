"""A fixed share of torch's operator database on the steps engine; all of it is
``python -m tests.conformance.sweep --engine steps``."""

from __future__ import annotations

import argparse
import hashlib

import pytest

from tests.conformance.sweep import all_tasks, check
from tests.conformance.sweep_page import DTYPES

# One pair of an entry and a dtype in so many.
SHARE = 24


def _chosen(text: str) -> bool:
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % SHARE == 0


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_steps_agree_with_eager(dynamic: bool) -> None:
    given = argparse.Namespace(
        engine="steps",
        samples=6,
        dynamic=dynamic,
        gradients=False,
        subnormals=False,
        build_only=False,
    )
    tasks = [
        (name, dtype, 0)
        for name, dtype, _ in all_tasks(["*"], DTYPES[:1] + DTYPES[4:5] + DTYPES[7:], 1)
        if _chosen(f"{name} {dtype} {dynamic}")
    ]
    results = list(check(tasks, given))
    bad = [r for r in results if r["outcome"] in ("wrong", "error")]
    assert not bad, "\n\n".join(f"{r['program']}: {r['outcome']}: {r['text']}" for r in bad)
    # What has no steps is compiled by MAX: few of all.
    refused = [r["program"] for r in results if r["outcome"] == "refused"]
    assert len(refused) <= len(results) // 10, refused
