"""Which instance of a kernel a step calls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from torch_max_backend.engines.steps.planner.instances import instance_of
from torch_max_backend.engines.steps.planner.plan import KernelStep, Memory, Place


def _dtypes(symbol: str, dtypes: Sequence[str], **parameters: object) -> list[str]:
    """The dtypes of the operands of the instance for dtypes of operands, the result's first."""
    memory = [Memory("temporary", dtype, 8) for dtype in dtypes]
    result, *operands = (Place(i, (8,), (1,)) for i in range(len(dtypes)))
    found = instance_of(KernelStep(symbol, parameters, (result,), tuple(operands)), memory)
    return [dtype for dtype, _ in found.operands]


@pytest.mark.parametrize(
    ("dtype", "width"),
    [("bool", 8), ("bfloat16", 16), ("float32", 32), ("int64", 64), ("float64", 64)],
)
def test_of_what_is_moved_only_the_width_counts(dtype: str, width: int) -> None:
    assert _dtypes("tmb_take", [dtype, dtype, "int64"]) == [f"uint{width}"] * 2 + ["int64"]


def test_what_combines_knows_the_dtype() -> None:
    dtypes = ["float32", "float32", "int64", "float32", "int64", "int64", "int64"]
    assert _dtypes("tmb_scatter_rows", dtypes, kind="sum") == dtypes
    assert _dtypes("tmb_scatter_rows", dtypes, kind="write")[:3] == ["uint32", "uint32", "int64"]


def test_kernels_of_users_know_the_dtype() -> None:
    assert _dtypes("mine", ["float32", "float32"], kind="write") == ["float32", "float32"]
