"""Versions of torch: what is promised is what is tried, and names that not all of them have."""

from __future__ import annotations

import tomllib

import torch

from tests import torch_versions
from tests.support.interpreters import run_python

# What torch 2.11 has and has not. Nothing else may be imported that wants the new name.
OLD = """
import torch
from torch.fx.experimental import symbolic_shapes
if hasattr(symbolic_shapes, "optimization_hint"):
    symbolic_shapes.size_hint = symbolic_shapes.optimization_hint
    del symbolic_shapes.optimization_hint

class Old(type(torch.ops.aten)):
    def __getattr__(self, name):
        if "lanczos" in name:
            raise AttributeError(name)
        return super().__getattr__(name)

torch.ops.aten.__class__ = Old
for name in [n for n in vars(torch.ops.aten) if "lanczos" in n]:
    delattr(torch.ops.aten, name)
from torch_max_backend.compat import torch_versions
from torch_max_backend.graph import shapes
from torch_max_backend.graph import dispatch_override
import torch_max_backend.ops
assert torch_versions.optimization_hint is symbolic_shapes.size_hint
assert shapes.hint(torch.ones(3).shape[0]) == 3
assert not torch_versions.LANCZOS and not torch_versions.LANCZOS_BACKWARD
assert dispatch_override.kernels()
"""


def test_names_of_the_lowest_torch() -> None:
    done = run_python("-c", OLD)
    assert done.returncode == 0, done.stderr


def test_what_is_promised_is_tried() -> None:
    with open(torch_versions.ROOT / "pyproject.toml", "rb") as file:
        (promised,) = (
            line
            for line in tomllib.load(file)["project"]["dependencies"]
            if line.startswith("torch")
        )
    major, minor = map(int, torch_versions.HIGHEST.split("."))
    assert promised == f"torch>={torch_versions.LOWEST},<{major}.{minor + 1}"
    assert all((torch_versions.ROOT / path).exists() for path in torch_versions.TESTS)
    assert set(torch_versions._TOOLS) <= set(torch_versions.requirements())


def test_this_torch_is_one_of_them() -> None:
    assert torch.__version__ >= torch_versions.LOWEST
    assert torch.__version__ < f"{torch_versions.HIGHEST}.99"
