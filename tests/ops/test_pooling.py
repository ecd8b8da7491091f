"""Means and maxima of windows, and gradients: windows in vectors, by columns and one by one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engines.steps.plans import traced
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


MAXIMA: dict[str, tuple[Callable[[Tensor], tuple[Tensor, Tensor]], tuple[int, ...]]] = {
    "even": (lambda x: F.adaptive_max_pool2d(x, 7, True), (2, 3, 28, 56)),
    "uneven": (lambda x: F.adaptive_max_pool2d(x, (3, 11), True), (2, 3, 10, 40)),
    "narrow": (lambda x: F.adaptive_max_pool2d(x, (2, 3), True), (2, 3, 5, 7)),
    "all of it": (lambda x: F.adaptive_max_pool2d(x, 1, True), (2, 3, 14, 14)),
    "larger than the image": (lambda x: F.adaptive_max_pool2d(x, 9, True), (1, 2, 4, 5)),
    "far apart": (lambda x: F.max_pool2d(x, 5, 3, 2, return_indices=True), (1, 2, 11, 50)),
    "dilated": (
        lambda x: F.max_pool2d(x, 3, 4, 1, 2, return_indices=True), (1, 2, 21, 40)
    ),
    "wider than the columns": (
        lambda x: F.max_pool1d(x, 700, 3, return_indices=True), (1, 2, 2000)
    ),
    "uneven and wide": (lambda x: F.adaptive_max_pool2d(x, (2, 7), True), (1, 2, 5, 1500)),
    "an image wider than the columns": (
        lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (1, 2, 4, 2500)
    ),
    "dilated by more than the padding": (
        lambda x: F.max_pool2d(x, 2, 1, 1, 3, return_indices=True), (1, 2, 9, 1200)
    ),
    "in space": (lambda x: F.adaptive_max_pool3d(x, 3, True), (1, 2, 6, 5, 34)),
}  # fmt: skip


@pytest.mark.parametrize("case", MAXIMA)
def test_maxima_and_their_places_are_eagers(case: str) -> None:
    function, shape = MAXIMA[case]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    # The first of equal numbers is where the maximum is, and the last NaN.
    x = torch.where(x > 1, 1.0, x)
    x[..., 1, ::9], x[0, 0, -2:] = float("nan"), float("-inf")
    for wanted in (x, x.double(), x.bfloat16()):
        _, executable = traced(lambda x: list(function(x)), [wanted])
        assert_close = torch.testing.assert_close
        expected = list(function(wanted))
        assert_close(executable([wanted]), expected, equal_nan=True, rtol=0, atol=0)
        # Places that nobody reads are not looked for.
        _, executable = traced(lambda x: [function(x)[0]], [wanted])
        assert_close(executable([wanted]), expected[:1], equal_nan=True, rtol=0, atol=0)
