"""``python -m tests.gpu.compile_for cuda sm_90a OUT``: compile a graph for a GPU that is not here.

A process of its own for each target: MAX fixes the target when it makes its first device.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
from max import driver
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


def program(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> tuple[torch.Tensor, ...]:
    sizes = [x.shape[-1]]
    norm, mean, rstd = torch.native_layer_norm(x, sizes, weight, bias, 1e-5)
    y = torch.nn.functional.gelu(norm + x) * 2.0
    gradients = torch.ops.aten.native_layer_norm_backward(
        y, x, sizes, mean, rstd, weight, bias, [True] * 3
    )
    return (torch.softmax(y, dim=-1).sum(dim=1), *gradients)


def main(api: str, architecture: str, out: str) -> None:
    driver.set_virtual_device_api(api)
    driver.set_virtual_device_target_arch(architecture)
    driver.set_virtual_device_count(1)

    import torch_max_backend.ops  # noqa: F401
    from tests.support.module_cache import artifact_of
    from torch_max_backend.engines.max.module import build_module
    from torch_max_backend.graph.capability import check_supported
    from torch_max_backend.graph.decompositions.table import decomposition_table
    from torch_max_backend.graph.signature import analyse

    with FakeTensorMode() as mode:
        tensors = [
            torch.empty(4, 8, 64, device="cuda"),
            torch.empty(64, device="cuda"),
            torch.empty(64, device="cuda"),
        ]
    with mode:
        module = make_fx(program, decomposition_table=decomposition_table())(*tensors)
    check_supported(module)
    mlir, libraries = build_module([analyse(module)])
    Path(out).write_bytes(artifact_of(mlir, libraries, f"for {architecture}", architecture))
    sys.stdout.flush()
    os._exit(0)  # A process with virtual devices aborts in its exit handlers.


if __name__ == "__main__":
    main(*sys.argv[1:4])
