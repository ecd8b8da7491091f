"""torch.compiler.save_cache_artifacts and load_cache_artifacts carry what this package keeps."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from tests.support.interpreters import run_python
from tests.support.step_libraries import lent

MODEL = """
import sys, torch
from torch_max_backend import max_backend

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.GELU(), torch.nn.LayerNorm(5)).eval()
x = torch.randn(4, 6)
compiled = torch.compile(model, backend=max_backend, fullgraph=True)
"""

SAVE = """
with torch.no_grad():
    compiled(x)
content, info = torch.compiler.save_cache_artifacts()
kinds = {key.partition("/")[0] for key in info.artifacts["max_backend"]}
assert kinds == {"artifacts", "steps"}, info
assert info.aot_autograd_artifacts
open(sys.argv[1], "wb").write(content)
"""

LOAD = """
import sys
import torch
from torch._dynamo.utils import counters
from torch_max_backend.engines.steps import libraries, planned

def compiles(*args, **kwargs):
    raise AssertionError("it compiles")

planned.planned = libraries.build = compiles
info = torch.compiler.load_cache_artifacts(open(sys.argv[1], "rb").read())
assert len(info.artifacts["max_backend"]) >= 3, info
with torch.no_grad():
    torch.testing.assert_close(compiled(x), model(x))
assert counters["aot_autograd"]["autograd_cache_hit"] == 1
# 0.2 to 0.4 s, none of which a warm start needs.
needless = {"max", "torch._inductor.ir", "torch._inductor.debug", "torch._inductor.codegen.wrapper",
            "torch.distributed.tensor.experimental"}
found = needless & sys.modules.keys()
assert not found or torch.__version__ < "2.15", found
print("loaded")
"""


def test_a_process_with_empty_caches_finds_everything(tmp_path: Path) -> None:
    def run(program: str, name: str) -> str:
        folders = {
            "TORCH_MAX_BACKEND_CACHE_DIR": str(tmp_path / name / "ours"),
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / name / "torch"),
        }
        environment = {**os.environ, **folders}
        done = run_python("-c", MODEL + program, tmp_path / "file", environment=environment)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    with lent(tmp_path / "first" / "ours"):
        run(SAVE, "first")
    assert "loaded" in run(LOAD, "second")


@pytest.mark.parametrize(
    "key", ["../outside", "artifacts/../../x", "other/a", "steps/", "steps/.a"]
)
def test_nothing_is_written_elsewhere(private_cache: Path, key: str) -> None:
    from torch_max_backend.cache import torch_artifacts

    torch_artifacts._write(key, b"content")
    assert not [p for p in private_cache.parent.rglob("*") if p.is_file()]


def test_a_file_that_is_there_stays(private_cache: Path) -> None:
    from torch_max_backend.cache import torch_artifacts

    torch_artifacts._write("artifacts/a.max", b"first")
    torch_artifacts._write("artifacts/a.max", b"second")
    assert (private_cache / "artifacts" / "a.max").read_bytes() == b"first"
    assert torch_artifacts._read("artifacts/a.max") == b"first"
    assert torch_artifacts._read("artifacts/gone.max") == b""


def test_artifacts_of_this_process_can_be_saved(private_cache: Path) -> None:
    from torch_max_backend.cache import store, torch_artifacts

    torch_artifacts.register()
    store.put("key", b"artifact", {"graph": "1"})
    found = torch.compiler.save_cache_artifacts()
    assert found is not None
    assert "artifacts/key.max" in found[1].artifacts["max_backend"]
    assert b"artifact" in found[0]
