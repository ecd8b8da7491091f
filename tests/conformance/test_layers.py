"""A share of torch's databases of modules and optimizers; ``layers.py`` runs all."""

from __future__ import annotations

import hashlib

import pytest

from tests.conformance.layers import Task, all_tasks, check

# One entry in so many, by its name.
_SHARE = 24
# Inputs of an entry: recurrent layers have 32, all else fewer.
_MOST = 8


def _chosen() -> list[Task]:
    return [
        task
        for task in all_tasks(["*"], ["float32"])
        if int(hashlib.sha256(task[1].encode()).hexdigest(), 16) % _SHARE == 0
    ]


@pytest.mark.parametrize("task", _chosen(), ids="-".join)
def test_agrees_with_eager(task: Task) -> None:
    assert not [r for r in check([task], _MOST) if r["outcome"] != "passed"]
