"""Means of windows and their gradients: windows in vectors, by columns and one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.beside_eager import assert_as_eager

CASES: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...]]] = {
    "vectors": (lambda x: F.avg_pool2d(x, 2), (2, 3, 28, 70)),
    "one apart": (lambda x: F.avg_pool2d(x, 3, 1, 1), (2, 3, 9, 40)),
    "padding counts not": (lambda x: F.avg_pool2d(x, 3, 2, 1, True, False), (2, 3, 11, 37)),
    "far apart": (lambda x: F.avg_pool2d(x, 2, 3), (1, 2, 11, 50)),
    "wide": (lambda x: F.avg_pool2d(x, (2, 5), (1, 2), (1, 2)), (1, 2, 7, 61)),
    "wider than the columns": (lambda x: F.avg_pool1d(x, 700, 3), (1, 2, 2000)),
    "by a divisor": (
        lambda x: F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True, divisor_override=5),
        (1, 2, 9, 41),
    ),
    "in space": (lambda x: F.avg_pool3d(x, 2, 2, 1), (1, 2, 6, 5, 34)),
    "even": (lambda x: F.adaptive_avg_pool2d(x, 7), (2, 3, 28, 56)),
    "uneven": (lambda x: F.adaptive_avg_pool2d(x, (3, 11)), (2, 3, 10, 40)),
    "uneven and wide": (lambda x: F.adaptive_avg_pool2d(x, (2, 7)), (1, 2, 5, 1500)),
    "larger than the image": (lambda x: F.adaptive_avg_pool2d(x, 9), (1, 2, 4, 5)),
}


@pytest.mark.parametrize("case", CASES)
def test_means_are_eagers(case: str) -> None:
    function, shape = CASES[case]
    assert_as_eager(function, torch.randn(shape, generator=torch.Generator().manual_seed(0)))


def test_float64() -> None:
    x = torch.arange(-300.0, 300.0, dtype=torch.float64).reshape(1, 2, 12, 25)
    assert_as_eager(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
