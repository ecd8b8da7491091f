"""Kernels called by the rows of a table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.engines.steps.libraries.cases import CUMSUM, USERS, row_of, run, sums_right
from torch_max_backend.engines.steps.runner import runner
from torch_max_backend.engines.steps.shells import Instance
from torch_max_backend.engines.steps.sources import write_users

pytestmark = pytest.mark.xdist_group("step_libraries")


def test_kernels_compute_what_torch_does(cache: Path) -> None:
    assert sums_right()
    x = torch.randn(2, 9, 3)
    first, second = torch.empty_like(x), torch.empty_like(x)
    assert run([row_of(CUMSUM, first, x), row_of(CUMSUM, second, first)]) == (-1, "")
    torch.testing.assert_close(second, x.cumsum(1).cumsum(1))


def test_a_wrong_row_is_told(cache: Path) -> None:
    x = torch.randn(2, 9, 3)
    y = torch.empty_like(x)  # a row keeps no tensor alive
    right = row_of(CUMSUM, y, x)
    wrong = [right[0], len(right) + 1, *right[2:], 0]
    assert run([right, wrong, right]) == (1, f"A row of tmb_cumsum has {len(right)} words")


def test_timed_loop(cache: Path) -> None:
    x = torch.randn(2, 9, 3)
    y = torch.empty_like(x)
    row = row_of(CUMSUM, y, x)
    table, ticks = torch.tensor(row * 3), torch.zeros(4, dtype=torch.int64)
    context = torch.zeros(5, dtype=torch.int64)
    found = runner(timed=True)(table.data_ptr(), 3, context.data_ptr(), ticks.data_ptr())
    assert found == -1
    assert (ticks[:3] > 0).all()
    assert ticks[3] == 0


def test_user_defined_kernels_take_our_threads(tmp_path: Path) -> None:
    source = tmp_path / "mine.mojo"
    source.write_text(USERS)
    write_users(source, tmp_path / "kernels")
    lines = (tmp_path / "kernels" / "mine.mojo").read_text().splitlines()
    assert lines[:6] == [
        "from tmb_support.core.each import foreach",
        "from extensibility import InputTensor, OutputTensor, register",
        "from layout import Coord",
        "from tmb_support.core.team import sync_parallelize",
        "from max.algorithm import elementwise",
        "from max.gpu.host import DeviceContext",
    ]
    assert (tmp_path / "tmb_support" / "core" / "team.mojo").is_file()
    assert source.read_text() == USERS


@pytest.mark.thorough
def test_user_defined_kernel(cache: Path, tmp_path: Path) -> None:
    source = tmp_path / "mine.mojo"
    source.write_text(USERS)
    operands = [("float32", 2), ("float32", 2), ("float32", 0)]
    wanted = Instance.of("mine_scale", {"times": 3}, operands, source)
    x = torch.randn(50, 1000)[:, ::2]
    y, by = torch.empty(50, 500), torch.tensor(2.0)
    assert run([row_of(wanted, y, x, by)]) == (-1, "")
    torch.testing.assert_close(y, x * 6)
    by.zero_()
    assert run([row_of(wanted, y, x, by)]) == (0, "by is 0")
