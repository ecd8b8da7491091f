"""Running products, logarithms of sums and extremes: lines behind each other and beside each other,
some at a time and alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import kinds, same_as_eager, traced

NAN, INF = float("nan"), float("inf")
# Lines of the middle dim.
SHAPES = {
    "behind each other": (37, 53, 1), "beside each other": (2, 19, 83), "a few": (2, 9, 3),
    "alone": (1, 200, 1),
}  # fmt: skip


def _scans(x: Tensor, y: Tensor, n: Tensor) -> list[Tensor]:
    """In one plan, so that all kernels are built at once."""
    found = [
        x.cumprod(1), x.logcumsumexp(1), *x.cummax(1), *x.cummin(1), y.cumprod(1), *y.cummax(1),
        n.cumprod(1), *n.cummin(1),
    ]  # fmt: skip
    return [r.clone() for r in found]


@pytest.mark.parametrize("other", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_eagers(shape: str, other: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(SHAPES[shape], generator=chance)
    # Of equal neighbours the last counts, and of NaNs.
    x = torch.where(x.abs() < 0.5, x.sign(), x)
    flat = x.view(-1)
    flat[5::101], flat[7::83], flat[9::71] = NAN, INF, -INF
    integer = torch.uint8 if other == torch.float64 else torch.int64
    n = torch.randint(0, 7, x.shape, generator=chance).to(integer)
    inputs = [x, x.to(other), n]
    _, executable = traced(_scans, inputs)
    torch.testing.assert_close(executable([*inputs]), _scans(*inputs), equal_nan=True)


def test_a_running_sum_of_one_element_is_part_of_a_program() -> None:
    x = torch.randn(5, 1, 7)
    x[0, 0, 0] = -0.0
    plan = same_as_eager(lambda x: [x.cumsum(1), x.cumsum(1) * 2], [x])
    assert "tmb_cumsum" not in kinds(plan)
    [once] = traced(lambda x: [x.cumsum(1)], [x])[1]([x])
    assert not once.signbit()[0, 0, 0]  # 0 + -0
