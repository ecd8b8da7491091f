"""``torch.compile(...).aot_compile()``: functions saved by one process and loaded by another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.groups import compile_group
from tests.support.interpreters import run_python
from tests.support.step_libraries import lent

# The graph is one that ``test_compiler.py`` compiles: MAX compiles it once.
SAVE = """
import sys, torch
from tests.support.module_cache import kept_compiles
from torch_max_backend import max_backend

def function(x, y):
    return x + y, x.t()

x, y = torch.randn(5, 7), torch.randn(7)
compiled = torch.compile(function, backend=max_backend, fullgraph=True, dynamic=True)
with kept_compiles():
    compiled.aot_compile(((x, y), {})).save_compiled_function(sys.argv[1])
"""

LOAD = """
import sys, torch
from torch_max_backend.engines.max import module
from torch_max_backend.engines.steps import planned

def compiles(*args, **kwargs):
    raise AssertionError("it compiles")

module.compile_module = planned.planned = compiles

def function(x, y):
    return x + y, x.t()

with open(sys.argv[1], "rb") as file:
    loaded = torch.compiler.load_compiled_function(file)
for rows in (5, 9):
    x, y = torch.randn(rows, 7), torch.randn(7)
    torch.testing.assert_close(loaded(x, y), function(x, y))
print("agrees")
"""


@pytest.mark.skipif(torch.__version__ < "2.12", reason="torch 2.11 saves none of other backends")
@compile_group("ahead of time")
@pytest.mark.parametrize("engine", ["steps", "max"])
def test_a_saved_function_needs_no_cache(
    engine: str, lent_libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_ENGINE", engine)
    file = tmp_path / "function.pt"
    done = run_python("-c", SAVE, file)
    assert done.returncode == 0, done.stderr
    empty = tmp_path / "empty"
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(empty))
    with lent(empty):
        done = run_python("-c", LOAD, file)
    assert done.returncode == 0, done.stderr
    assert "agrees" in done.stdout
    assert len(file.read_bytes()) > 1000


def test_what_is_not_for_this_machine_is_refused(private_cache: Path) -> None:
    from torch_max_backend import CacheError
    from torch_max_backend.cache import store
    from torch_max_backend.cache.compatibility import environment_components
    from torch_max_backend.cache.key import cache_key
    from torch_max_backend.driver.autograd_cache import Carried

    parts = {"graph": "1", **environment_components()}
    key = cache_key(parts)
    store.put(key, b"native code", parts)
    carried = Carried.of(key)
    carried.check(key)
    with pytest.raises(CacheError, match="damaged"):
        Carried(b"other code", carried.sha256, carried.graphs, parts).check(key)
    other = {**parts, "max": "1.0", "target": "another"}
    words = r"max 1\.0 != .*, another CPU or accelerator"
    with pytest.raises(CacheError, match=words):
        Carried(carried.artifact, carried.sha256, carried.graphs, other).check(key)
    with pytest.raises(CacheError, match="doctor"):
        Carried.of("0" * 64)
