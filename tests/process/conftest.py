"""The cache that the tests of MAX's engine share, filled by two processes at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from tests.process.program import ROOT, finish, start

COMPILE = """
import sys, torch
from tests.process.program import Net, compiled, expected, rows
from tests.support.module_cache import kept_compiles
from torch_max_backend.cache import store

store.listeners.append(lambda key, what: print(what, key, flush=True))
print("ready", flush=True)
sys.stdin.readline()
net = Net()
with torch.no_grad(), kept_compiles():
    y = compiled(net)(rows())
torch.testing.assert_close(y, expected(net, rows()))
"""


@dataclass
class Warm:
    """A cache that holds ``Net`` for inference, of any number of rows.

    Attributes:
        environment: With which a process uses it.
        said: What became of the artifact in each of the processes that filled it at once.
    """

    environment: dict[str, str]
    said: list[list[list[str]]]


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    folder = tmp_path_factory.mktemp("processes")
    ours = folder / "ours"
    ours.mkdir(mode=0o700)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TORCH_MAX_BACKEND_CACHE_DIR": str(ours),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
        "TORCH_MAX_BACKEND_ENGINE": "max",
    }
    processes = [start(COMPILE, environment) for _ in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n", finish(process)
    for process in processes:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    said = []
    for process in processes:
        out, err = finish(process)
        assert process.returncode == 0, err
        said.append([line.split() for line in out.splitlines()])
    return Warm(environment, said)


@pytest.fixture
def loaded(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process loads ``Net`` from the shared cache, and compiles nothing."""
    for name in (
        "TORCH_MAX_BACKEND_CACHE_DIR",
        "TORCHINDUCTOR_CACHE_DIR",
        "TORCH_MAX_BACKEND_ENGINE",
    ):
        monkeypatch.setenv(name, warm.environment[name])

    def refuse(jobs: object) -> None:
        raise AssertionError("it compiles")

    monkeypatch.setattr("torch_max_backend.driver.job.compile_together", refuse)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
