"""Packages are compiled for NVIDIA and AMD GPUs on a machine without one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.support.groups import compile_group
from tests.support.module_cache import kept_for_targets
from torch_max_backend import export


class _Rows(torch.nn.Module):
    """A kernel of ours, operations of MAX around it."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.cumsum(x * weight, -1) * 2.0


@compile_group("gpu", weight=10)
@pytest.mark.parametrize(
    "architecture",
    [
        pytest.param("sm_90a", id="nvidia", marks=compile_group("gpu", 10)),
        # The kernels themselves are compiled for both by `test_mojo_kernels.py`.
        pytest.param("gfx942", id="amd", marks=[compile_group("gpu", 10), pytest.mark.thorough]),
    ],
)
def test_a_package_is_compiled_for(architecture: str, tmp_path: Path) -> None:
    arguments = torch.randn(4, 8, 64), torch.randn(64)
    with kept_for_targets():
        path = export(_Rows(), arguments, path=tmp_path / "rows", target=architecture)
    assert architecture.encode() in (path / "code.mef").read_bytes()
