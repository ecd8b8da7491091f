"""Start here: whole programs through ``torch.compile(..., backend=max_backend)``.

Both engines run the programs of the first half, MAX's with one compile for all; the second half
plans or compiles one program for real, starts it again in new processes, and damages its artifact.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.precompiled import Case, Precompiled, whole_programs_by_max
from tests.support.interpreters import run_python
from tests.support.step_libraries import lent

pytestmark = pytest.mark.xdist_group("compile-0")


class Model(torch.nn.Module):
    """Parameters, a buffer that each call changes, and a buffer that none does; without products,
    for which MAX compiles a third longer: ``test_training.py`` has some."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(torch.randn(8, 4))
        self.bias = torch.nn.Parameter(torch.randn(8))
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 8))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        products = x.unsqueeze(1) * self.weight
        return torch.tanh(products.sum(2) + self.bias) * self.scale


def special(x: Tensor) -> tuple[Tensor, ...]:
    return x + 1, x * 0, x.view(-1), torch.cat([x, -x])


SPECIAL = torch.tensor([[1.0, float("nan"), float("inf")], [-float("inf"), 0.0, -0.0]])

CASES = {
    "model": Case(lambda: Model().eval(), lambda: [(torch.randn(5, 4),)], backward=True),
    "dynamic": Case(
        lambda: lambda x: (x.view(-1) + 1, x.t() + x.shape[0]),
        lambda: [(torch.randn(5, 4),)],
        dynamic=True,
    ),
    "special": Case(lambda: special, lambda: [(SPECIAL.clone(),)]),
}


@pytest.fixture(scope="module", params=["steps", "max"])
def precompiled(request: pytest.FixtureRequest) -> Precompiled:
    return whole_programs_by_max() if request.param == "max" else Precompiled(CASES)


@pytest.fixture
def programs(precompiled: Precompiled) -> Iterator[Precompiled]:
    with precompiled.serving():
        yield precompiled


def test_a_model_with_parameters_and_buffers(programs: Precompiled) -> None:
    eager, ours = Model().eval(), Model().eval()
    compiled = programs.compile(ours)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(5, 4)
        torch.testing.assert_close(compiled(x), eager(x))
    # The buffer was changed in place, as often as in eager.
    assert ours.calls.item() == eager.calls.item() == 3


def test_training_gives_eagers_gradients(programs: Precompiled) -> None:
    eager, ours = Model().eval(), Model().eval()
    compiled = programs.compile(ours)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (eager, ours)]
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(5, 4)
        for module, optimizer in zip((eager, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            module(x).sum().backward()
            optimizer.step()
        for theirs, mine in zip(eager.parameters(), ours.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
            torch.testing.assert_close(mine, theirs)


def test_one_compile_serves_all_sizes(programs: Precompiled) -> None:
    compiled, eager = programs.compiled("dynamic"), programs.eager("dynamic")
    for shape in ((5, 4), (2, 7), (33, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), eager(x), check_stride=True)
    assert programs.loaded == 1


def test_nan_and_infinity_pass_through(programs: Precompiled) -> None:
    ours, theirs = programs.compiled("special")(SPECIAL), special(SPECIAL)
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=0, atol=0)
    # Moving data keeps the signs of zeros too.
    assert torch.equal(ours[2].signbit(), theirs[2].signbit())


PROGRAM = """
import json, sys, torch
import torch_max_backend.engines.max.module as module
import torch_max_backend.engines.steps.planned as planning
from tests.support.module_cache import kept_compiles
real, plan = module.build_module, planning.planned
built = []
module.build_module = lambda traces: built.append("max") or real(traces)
planning.planned = lambda trace: built.append("steps") or plan(trace)

def program(x, y):
    return x + y, x.t()

x, y = torch.arange(12.0).reshape(3, 4), torch.ones(4)
with kept_compiles():
    results = torch.compile(program, backend="max", fullgraph=True, dynamic=True)(x, y)
right = all(torch.equal(a, b) for a, b in zip(results, program(x, y)))
print(json.dumps({"built": built, "right": right}))
"""


@dataclass
class Started:
    """Runs of one program in processes of their own, with caches of their own."""

    folder: Path
    engine: str

    def run(self) -> tuple[dict[str, Any], str]:
        script = self.folder / "program.py"
        script.write_text(PROGRAM)
        done = run_python(
            script,
            environment={
                **os.environ,
                "TORCH_MAX_BACKEND_CACHE_DIR": str(self.folder / "ours"),
                "TORCH_MAX_BACKEND_CACHE": "1",
                "TORCH_MAX_BACKEND_ENGINE": self.engine,
                "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "torch"),
                "PYTHONPATH": str(Path(__file__).resolve().parents[1]),
            },
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    def artifact(self) -> Path:
        (path,) = (self.folder / "ours" / "artifacts").glob("*.max")
        return path


@pytest.fixture(scope="module", params=["steps", "max"])
def started(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Started]:
    """After a first, cold run."""
    started = Started(tmp_path_factory.mktemp("warm"), request.param)
    with lent(started.folder / "ours"):
        outcome, _ = started.run()
        assert outcome == {"built": [started.engine], "right": True}
        yield started


def test_a_warm_start_builds_no_graph(started: Started) -> None:
    outcome, _ = started.run()
    assert outcome == {"built": [], "right": True}


def test_a_damaged_artifact_gives_a_right_answer(started: Started) -> None:
    path = started.artifact()
    content = bytearray(path.read_bytes())
    content[-20] ^= 0x10  # not the header, which a small plan is shorter than
    path.write_bytes(content)
    outcome, log = started.run()
    assert outcome == {"built": [started.engine], "right": True}
    assert "checksum is wrong" in log
    assert bytes(content) != started.artifact().read_bytes()
    outcome, _ = started.run()
    assert outcome == {"built": [], "right": True}


def test_options_turn_the_cache_off_and_on(
    private_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend.driver.unit import caching
    from torch_max_backend.options import Options

    assert caching(Options())
    assert not caching(Options(cache=False))
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    assert not caching(Options())
    assert caching(Options(cache=True))
    from torch_max_backend.cache import store

    store.put("key", b"artifact", {})
    assert store.get("key") == (b"artifact", ("key",))
