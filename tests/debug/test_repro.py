"""``debug.repro`` and ``debug.dump``: files that tell of a graph."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.driver.test_partitioned import unknown
from tests.support.groups import compile_group
from tests.support.interpreters import run_python
from tests.support.module_cache import kept_compiles
from torch_max_backend import max_backend
from torch_max_backend.cache import store
from torch_max_backend.debug import dump, repro


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 7)

    def forward(self, x: Tensor) -> Tensor:
        table = torch.tensor([1.0, 2.0, float("inf")])
        return self.inner(x).sigmoid().sum() + table[:2].sum() + (x > 0).to(torch.int64).sum()


@compile_group("repro")
def test_the_script_repeats_the_graph(tmp_path: Path) -> None:
    path = repro(_Net(), torch.randn(3, 6), path=tmp_path / "repro.py", dynamic=True)
    done = run_python(path)
    assert done.returncode == 0, done.stderr
    assert "results agree with eager" in done.stdout


def test_the_graph_that_max_refuses_is_chosen(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        y = (x.sin() + 1).cos()
        torch._dynamo.graph_break()
        return unknown(y) * 2 + y

    text = repro(function, torch.randn(3), path=tmp_path / "repro.py").read_text()
    assert text.startswith('"""Graph 1 (inference)')
    assert "MAX refuses\nunknown: an operator from outside PyTorch" in text
    compile(text, "repro.py", "exec")
    text = repro(function, torch.randn(3), path=tmp_path / "repro.py", graph=0).read_text()
    assert "MAX takes all of it" in text
    with pytest.raises(IndexError, match="there are 2 graphs"):
        repro(function, torch.randn(3), path=tmp_path / "repro.py", graph=2)


# MAX compiles its graphs for ``test_training.py``, which runs in the same worker.
@pytest.mark.xdist_group("training")
@kept_compiles()
def test_a_compile_leaves_its_files(private_cache: Path, tmp_path: Path, max_engine: None) -> None:
    net, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5)), torch.randn(4, 6)
    with dump(tmp_path / "dumps") as folder:
        torch.compile(net, backend=max_backend)(x).pow(3).sum().backward()
    (place,) = folder.iterdir()
    assert {p.name for p in place.iterdir()} == {
        "artifact.mef", "graph0.json", "graph0.py", "graph1.json", "graph1.py", "module.mlir",
        "timing.json",
    }  # fmt: skip
    about = json.loads((place / "graph0.json").read_text())
    stored = store.get(about["key"])
    assert stored is not None
    assert stored.artifact == (place / "artifact.mef").read_bytes()
    assert "aten.tanh.default" in (place / "graph0.py").read_text()
    assert "mo.graph" in (place / "module.mlir").read_text()
    assert json.loads((place / "timing.json").read_text())[0]["compile"] > 0


def test_a_plan_leaves_its_files(lent_libraries: Path, tmp_path: Path) -> None:
    net, x = _Net(), torch.randn(3, 6)
    with dump(tmp_path / "dumps") as folder:
        torch.compile(net, backend=max_backend)(x).backward()
    forward, backward = sorted(folder.iterdir(), key=_has_no_sigmoid)
    for place in (forward, backward):
        assert {p.name for p in place.iterdir()} == {
            "artifact.plan", "graph0.json", "graph0.py", "steps.txt", "timing.json",
        }  # fmt: skip
        about = json.loads((place / "graph0.json").read_text())
        stored = store.get(about["key"])
        assert stored is not None
        assert stored.artifact == (place / "artifact.plan").read_bytes()
        assert json.loads((place / "timing.json").read_text())[0]["plan"] > 0
    assert "sigmoid" in (forward / "steps.txt").read_text()


def _has_no_sigmoid(place: Path) -> bool:
    return "aten.sigmoid.default" not in (place / "graph0.py").read_text()
