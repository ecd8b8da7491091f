"""Compiled models in several processes of torch.distributed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from tests.support.step_libraries import lent

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "distributed.py"
NOTHING_COMPILED = 'model.compile(backend="max"), then wrap it'
WAYS = ["ddp", "fsdp", "tensor", "pipeline", "checkpoint"]

pytestmark = pytest.mark.xdist_group("distributed")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What two processes of the example write."""
    cache = tmp_path_factory.mktemp("cache")
    changes = {
        "TORCH_MAX_BACKEND_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torch"),
        "OMP_NUM_THREADS": "1",
    }
    environment = {**os.environ, **changes}
    del environment["TORCH_MAX_BACKEND_FALLBACK"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*launch, "--nproc-per-node", "2", str(EXAMPLE), "--steps", "4"]
    with lent(cache):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout, done.stderr


@pytest.mark.parametrize("way", WAYS)
def test_losses_are_eagers(output: tuple[str, str], way: str) -> None:
    # The example itself compares them, to 1e-5, in each process.
    lines = [line.split() for line in output[0].splitlines() if line.startswith(way)]
    assert [line[1] for line in lines] == ["eager", "max"]
    eager, ours = ([float(loss) for loss in line[4:]] for line in lines)
    assert len(ours) == 4
    assert ours == pytest.approx(eager, abs=1e-5)
    assert ours[-1] > 0


def test_collectives_are_no_surprise(output: tuple[str, str]) -> None:
    assert "eager PyTorch" not in output[1]
    assert NOTHING_COMPILED not in output[1]


def test_parts_between_collectives_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one process, whose collectives have nobody to wait for."""
    import torch.distributed as dist
    from torch.distributed._functional_collectives import all_reduce

    torch._dynamo.reset()
    # A process group names the rank in every later traceback of this process.
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        weight = torch.randn(8, 8)

        def function(x: torch.Tensor) -> torch.Tensor:
            x = all_reduce((x @ weight).relu(), "sum", dist.group.WORLD)
            return (x @ weight).sigmoid()

        x = torch.randn(4, 8)
        before = dict(counters["max_backend"])
        compiled = torch.compile(function, backend="max", options={"fallback": "eager"})
        torch.testing.assert_close(compiled(x), function(x))
        now = counters["max_backend"]
        made = {key: now[key] - before.get(key, 0) for key in now}
        assert (made["parts"], made["operators"]) == (2, 4)
        assert made["eager _c10d_functional.all_reduce.default"] == 1
    finally:
        dist.destroy_process_group()


NOTHING = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method="file://{store}", rank=0, world_size=1)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
wrapped = torch.compile(torch.nn.parallel.DistributedDataParallel(model), backend="max")
wrapped(torch.randn(2, 4)).sum().backward()
dist.destroy_process_group()
"""


@pytest.mark.skipif(torch.__version__ < "2.15", reason="torch tells nothing of it before 2.15")
def test_a_process_that_compiled_nothing_says_so(tmp_path: Path) -> None:
    program = NOTHING.format(store=tmp_path / "store")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(NOTHING_COMPILED) == 1
