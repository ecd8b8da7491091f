"""What importing the package does not do."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, sys, torch
read = []
class Watched(dict):
    def __getitem__(self, name): read.append(name); return super().__getitem__(name)
    def get(self, name, default=None): read.append(name); return super().get(name, default)
    def __contains__(self, name): read.append(name); return super().__contains__(name)
os.environ = Watched(os.environ)
import logging, torch_max_backend
assert not [n for n in read if str(n).startswith("TORCH_MAX_BACKEND_")], read
from torch_max_backend import *
assert not [m for m in sys.modules if m == "max" or m.startswith("max.")], "MAX was imported"
names = [n for n in logging.root.manager.loggerDict if n.startswith("torch_max_backend")]
assert names and all(logging.getLogger(n).level == logging.NOTSET for n in names), names
import torch_max_backend.ops
assert not [n for n in read if str(n).startswith("TORCH_MAX_BACKEND_")], read
"""


def test_import_reads_no_variable_loads_no_max_and_sets_no_log_level() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


COLLECTIONS = """
import gc, torch, torch_max_backend
gc.collect()
before = gc.get_stats()[2]["collections"]
torch_max_backend.max_backend
assert gc.isenabled() and not gc.get_freeze_count()
assert gc.get_stats()[2]["collections"] == before
assert len(gc.get_objects(generation=0)) < 10_000
"""


def test_nothing_looks_for_garbage_among_what_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTIONS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_backend_is_registered_by_name() -> None:
    from torch._dynamo.backends.registry import lookup_backend

    from torch_max_backend import max_backend

    assert lookup_backend("max") is max_backend


LOAD = """
import sys, torch
before = set(sys.modules)
import torch_max_backend
try:
    torch_max_backend.load("no such folder")
except torch_max_backend.PackageError as e:
    assert "no such folder" in str(e)
else:
    raise AssertionError("nothing is no package")
heavy = {"torch._dynamo", "torch._inductor", "torch._functorch.aot_autograd", "sympy", "max"}
assert not heavy & (set(sys.modules) - before), heavy & set(sys.modules)
old = torch_max_backend.PackageError("raised before there is a backend")
from torch_max_backend import max_backend
from torch._dynamo.exc import ShortenTraceback
assert isinstance(old, ShortenTraceback)
assert torch_max_backend.PackageError("later").first_useful_frame is None
"""


def test_loading_a_package_imports_no_dynamo() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    import torch_max_backend

    names = torch_max_backend.__all__
    assert sorted(names) == names
    assert set(names) <= set(dir(torch_max_backend))
    assert all(getattr(torch_max_backend, name) is not None for name in names)
    with pytest.raises(AttributeError, match="no_such_name"):
        torch_max_backend.no_such_name  # noqa: B018
