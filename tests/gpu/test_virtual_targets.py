"""Packages are compiled for NVIDIA and AMD GPUs on a machine without one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.groups import compile_group
from tests.support.module_cache import kept_for_targets
from torch_max_backend import export


class _Rows(torch.nn.Module):
    """Two kernels of ours, operations of MAX between them."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        sizes = [x.shape[-1]]
        norm, mean, rstd = torch.native_layer_norm(x, sizes, weight, bias, 1e-5)
        y = F.gelu(norm + x) * 2.0
        gradients = torch.ops.aten.native_layer_norm_backward(
            y, x, sizes, mean, rstd, weight, bias, [True] * 3
        )
        return (y.sum(dim=1), *gradients)


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
    arguments = torch.randn(4, 8, 64), torch.randn(64), torch.randn(64)
    with kept_for_targets():
        path = export(_Rows(), arguments, path=tmp_path / "rows", target=architecture)
    assert architecture.encode() in (path / "code.mef").read_bytes()
