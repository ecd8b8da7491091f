"""Rows of tables that call a cumulative sum, and what forgets that it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from torch_max_backend.engines.steps import fused, libraries
from torch_max_backend.engines.steps.libraries import addresses
from torch_max_backend.engines.steps.runner import runner
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.process import private_folders

TAKE = Instance.of("tmb_take", {}, [("float32", 3), ("float32", 3), ("int64", 1)])
CUMSUM = Instance.of("tmb_cumsum", {}, [("float32", 3), ("float32", 3)])
DOUBLE = Instance.of("tmb_cumsum", {}, [("float64", 3), ("float64", 3)])
INTEGER = ("int64", 0)
GEMM = [("float32", 3), ("float32", 3), ("float32", 3), ("float32", 1), *[INTEGER] * 5]


def forget(patch: pytest.MonkeyPatch) -> None:
    """Make this process one that has loaded nothing, and waits for no compile of others."""
    # What tests before left to be built in the background would be written to this test's cache.
    fused.thread.drop(timeout=120)
    patch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", "64")
    for name in ("_loaded", "_addresses", "_failed"):
        patch.setattr(libraries, name, {})
    patch.setattr(private_folders, "known", private_folders.Known())
    runner.cache_clear()


def row_of(wanted: Instance, *tensors: torch.Tensor) -> list[int]:
    words = [addresses([wanted])[wanted], wanted.words]
    for tensor in tensors:
        words += [tensor.data_ptr(), *tensor.shape, *tensor.stride()]
    assert len(words) == wanted.words
    return words


def run(rows: list[list[int]]) -> tuple[int, str]:
    """What the loop returns for rows, and the text of what failed."""
    table = torch.tensor([word for row in rows for word in row])
    text = torch.zeros(200, dtype=torch.uint8)
    context = torch.tensor([text.data_ptr(), 200, 0, 0, 0])
    failed = runner()(table.data_ptr(), len(rows), context.data_ptr())
    return failed, bytes(text[: int(context[2])].tolist()).decode()


def files(cache: Path) -> tuple[Path, Path]:
    """The library of the cumulative sum, and its manifest."""
    (library,), (manifest,) = (cache.glob(f"reduction_cumsum-*.{end}") for end in ("so", "json"))
    return library, manifest


def sums_right() -> bool:
    x = torch.randn(3, 70, 5)
    y = torch.empty_like(x)
    assert run([row_of(CUMSUM, y, x)]) == (-1, "")
    return torch.allclose(y, x.cumsum(1), atol=1e-5)


USERS = """\
from extensibility import InputTensor, OutputTensor, foreach, register
from layout import Coord
from max.algorithm import (
    sync_parallelize,
    elementwise,  # not ours
)
from max.gpu.host import DeviceContext

@register("mine_scale")
struct Scale:
    @staticmethod
    def execute[times: Int, target: StaticString](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        by: Float32,
        ctx: DeviceContext,
    ) raises:
        if by == 0:
            raise Error("by is 0")

        @always_inline
        def body[width: Int](at: Coord[...]) {var x, var by} -> SIMD[output.dtype, width]:
            return x.load[width](at) * by.cast[output.dtype]() * SIMD[output.dtype, width](times)

        foreach[target=target](body, output, ctx)
"""
