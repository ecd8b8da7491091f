"""Loaded packages: eager's results without a compiler, state of their own, clear refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.ahead_of_time.models import CASES
from tests.support.groups import compile_group
from tests.support.step_libraries import lent
from torch_max_backend import InputError, export, load

pytestmark = compile_group("package", 5)


def _same(ours: Any, theirs: Any) -> None:
    """Equal structures of close tensors and equal numbers and texts."""
    mine, spec = torch.utils._pytree.tree_flatten(ours)
    others, expected = torch.utils._pytree.tree_flatten(theirs)
    assert spec == expected
    for a, b in zip(mine, others, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert not a.requires_grad
        else:
            assert type(a) is type(b)
            assert a == b


@pytest.mark.parametrize("made", ["packages", "packages_of_max"])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [("tied", [4, 7, 64]), ("pairs", [8, 6, 200]), ("fours", [8, 4, 12])],
)
def test_results_are_those_of_eager(
    request: pytest.FixtureRequest, made: str, name: str, sizes: list[int]
) -> None:
    packages = request.getfixturevalue(made)
    module, loaded = CASES[name].module(), load(packages / name, verify=True)
    for size in sizes:
        args, kwargs = CASES[name].call(size)
        mine, options = CASES[name].call(size)
        _same(loaded(*mine, **options), module(*args, **kwargs))
        _same((mine, options), (args, kwargs))  # what it writes to, too
    torch.testing.assert_close(loaded.state_dict(), dict(module.state_dict()))


def test_arguments_by_name(packages: Path) -> None:
    loaded = load(packages / "tied")
    (x, cache), _ = CASES["tied"].call(5)
    results = loaded(k=5, cache=cache, x=x)
    assert results["given"][0] is x
    assert results["given"][2:] == (5, None)


LOAD = """
import json, sys, torch
import torch_max_backend
from torch_max_backend.engines.steps import libraries
from safetensors.torch import load_file

def compiles(*args, **kwargs):
    raise AssertionError("it compiles")

libraries.build = compiles
if sys.argv[3] == "packages_of_max":
    from max import engine
    engine.InferenceSession.compile = compiles
loaded = torch_max_backend.load(sys.argv[1])
data = load_file(sys.argv[2])
found = loaded(data["x"], {"sums": data["sums"]}, k=5)
heavy = ("torch._dynamo", "torch._inductor", "sympy", "torch_max_backend.convert", "tests", "max")
print(json.dumps([m for m in heavy if m in sys.modules]))
torch.testing.assert_close(found["y"], data["y"])
"""


@pytest.mark.parametrize("made", ["packages", "packages_of_max"])
def test_a_new_process_needs_no_compiler_no_artifact_and_no_dynamo(
    request: pytest.FixtureRequest, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors.torch import save_file

    packages, cache = request.getfixturevalue(made), tmp_path / "cache"
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(cache))
    (x, sums), kwargs = CASES["tied"].call(9)
    given = {"x": x, **{k: v.clone() for k, v in sums.items()}}
    y = CASES["tied"].module()(x, sums, **kwargs)["y"].detach()
    save_file({**given, "y": y}, tmp_path / "data")
    command = [sys.executable, "-c", LOAD, packages / "tied", tmp_path / "data", made]
    with lent(cache):
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # A plan runs without MAX.
    assert json.loads(done.stdout) == (["max"] if made == "packages_of_max" else [])
    assert {p.name for p in cache.iterdir()} == {"steps"}


def test_tied_weights_are_kept_once(packages: Path) -> None:
    from safetensors import safe_open

    with safe_open(packages / "tied" / "weights.safetensors", framework="pt") as file:
        names = set(file.keys())
    assert len(names & {"first.weight", "second.weight"}) == 1
    state = load(packages / "tied").state_dict()
    assert state["first.weight"].data_ptr() == state["second.weight"].data_ptr()
    assert "shift" not in state
    assert "table" not in state


def test_a_package_has_state_of_its_own(packages: Path) -> None:
    one, two = load(packages / "tied"), load(packages / "tied")
    for _ in range(3):
        args, kwargs = CASES["tied"].call(4)
        one(*args, **kwargs)
    assert one.state_dict()["steps"] == 3
    assert two.state_dict()["steps"] == 0
    assert load(packages / "tied", verify=True).state_dict()["steps"] == 0


def test_weights_can_be_replaced(packages: Path) -> None:
    loaded, module = load(packages / "tied"), CASES["tied"].module()
    with torch.no_grad():
        for tensor in module.state_dict().values():
            tensor.mul_(2)
    loaded.load_state_dict(module.state_dict())
    args, kwargs = CASES["tied"].call(6)
    mine, options = CASES["tied"].call(6)
    _same(loaded(*mine, **options), module(*args, **kwargs))
    wrong = {**module.state_dict(), "first.bias": torch.ones(9), "other": torch.ones(1)}
    del wrong["second.bias"]
    before = {k: v.clone() for k, v in loaded.state_dict().items()}
    words = r"missing: second.bias\n.*unknown: other\n.*first.bias is \[9\], not \[8\]"
    with pytest.raises(InputError, match=words):
        loaded.load_state_dict(wrong)
    _same(loaded.state_dict(), before)


def test_packed_weights_follow_the_state(lent_libraries: Path, tmp_path: Path) -> None:
    module = torch.nn.Linear(128, 96)
    x = torch.randn(8, 128)
    export(module, (x,), path=tmp_path / "linear", options={"engine": "steps"})
    loaded = load(tmp_path / "linear", pack=True)
    for _ in range(2):
        torch.testing.assert_close(loaded(x), module(x).detach(), rtol=1e-4, atol=1e-5)
        # What is written without a count is not seen: this shows that the weight was packed.
        loaded.state_dict()["weight"].data.zero_()
        torch.testing.assert_close(loaded(x), module(x).detach(), rtol=1e-4, atol=1e-5)
        module = torch.nn.Linear(128, 96)
        loaded.load_state_dict(module.state_dict())


def test_it_tells_of_itself(packages: Path) -> None:
    loaded = load(packages / "fours")
    assert "x: float32[" in repr(loaded)
    assert "n: int[" in repr(loaded)
    assert "aten.view.default" in loaded.graph()
    assert __file__.rpartition("/")[0] not in loaded.graph()


X, SUMS = torch.ones(4, 8), {"sums": torch.ones(6, 8)}
SHARED = torch.ones(6, 8)
REFUSED: list[tuple[str, Callable[[Any], Any], str]] = [
    ("tied", lambda f: f(X, SUMS), "Missing: 'k'"),
    ("tied", lambda f: f(), "Missing: 'x', 'cache', 'k'"),
    ("tied", lambda f: f(X, SUMS, 1, k=5), "Given: 3 positional"),
    ("tied", lambda f: f(X, SUMS, k=5, x=X), "Unknown: 'x'"),
    ("tied", lambda f: f(X, SUMS, k=5, other=1), "Unknown: 'other'"),
    ("tied", lambda f: f(X, SUMS, k=4), r"k is 4 \(int\); .* for 5 only"),
    ("tied", lambda f: f(X, SUMS, k=5.0), r"k is 5.0 \(float\)"),
    ("tied", lambda f: f(X, {"sum": X}, k=5), "missing key"),
    ("tied", lambda f: f(X, [X], k=5), "structure"),
    ("tied", lambda f: f([X], SUMS, k=5), r"x is \[tensor.* \(list\)"),
    ("tied", lambda f: f(X.double(), SUMS, k=5), r"x is a tensor of torch.float64\[4, 8\] on cpu"),
    ("tied", lambda f: f(X[0], SUMS, k=5), r"float32\[8\] on cpu; .* torch.float32\[d0, 8\]"),
    ("tied", lambda f: f(X.to("meta"), SUMS, k=5), "on meta; .* on cpu"),
    ("tied", lambda f: f(X.to_sparse(), SUMS, k=5), "torch.sparse_coo"),
    ("tied", lambda f: f(X[:, :7], SUMS, k=5), r"x.shape\[1\] is 7; .* for 8 only"),
    ("tied", lambda f: f(torch.ones(65, 8), SUMS, k=5), r"x.shape\[0\] is 65; .* for 1 to 64"),
    ("tied", lambda f: f(torch.ones(0, 8), SUMS, k=5), r"x.shape\[0\] is 0; .* for 1 to 64"),
    ("tied", lambda f: f(X[:3], SUMS, k=5), r"cache\['sums'\].shape\[0\] is 6, and has to be 5"),
    ("tied", lambda f: f(SHARED[:4], {"sums": SHARED}, k=5), "share memory"),
    ("pairs", lambda f: f(torch.ones(7, 3)), r"x.shape\[0\] is 7; .* 6 to 200, 2 times a number"),
    ("pairs", lambda f: f(torch.ones(4, 3)), r"x.shape\[0\] is 4; .* 6 to 200"),
    ("fours", lambda f: f(torch.ones(7, 3), 4, X[:, :2]), r"\(3\*x.shape\[0\]\) % 4\) == 0"),
    ("fours", lambda f: f(torch.ones(8, 3), True, X), r"n is True \(bool\); .* an int"),
    ("fours", lambda f: f(torch.ones(8, 3), None, X), r"n is None \(NoneType\); .* an int"),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_other_arguments_are_refused(packages: Path, case: int) -> None:
    name, call, words = REFUSED[case]
    loaded = load(packages / name)
    with pytest.raises(InputError, match=words):
        call(loaded)
    assert not loaded.state_dict().get("steps")
