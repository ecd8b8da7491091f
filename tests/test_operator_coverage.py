"""The page of operators."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.support.groups import compile_group

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"


@pytest.mark.skipif(torch.__version__ < "2.15", reason="the page is of the operators of torch 2.15")
@compile_group("catalogue", weight=0.3)
def test_the_page_is_current() -> None:
    from torch_max_backend.operator_tools.coverage import markdown

    again = "python -m torch_max_backend operators > docs/ops.md"
    assert PAGE.read_text() == markdown(), f"make it again: {again}"


@compile_group("catalogue", weight=0.3)
def test_core_operators_are_accounted_for() -> None:
    from torch_max_backend.operator_tools.coverage import catalogue

    core = [fate for fate in catalogue() if fate.core]
    assert len(core) == 193
    assert all(fate.detail for fate in core if fate.outcome in ("lowered", "refused"))
    assert Counter(fate.outcome for fate in core)["refused"] <= 2
