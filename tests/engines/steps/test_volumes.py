"""Convolutions of volumes and their gradients on the steps engine, beside float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import kinds, traced
from tests.engines.steps.test_convolution_gradients import Case, _settings

aten = torch.ops.aten

ONE = (1, 1, 1)
NONE = (0, 0, 0)
CASES = {
    "3x3x3": Case((2, 5, 6, 7, 9), (7, 5, 3, 3, 3), ONE, ONE, ONE),
    "every second": Case((2, 3, 7, 8, 9), (8, 3, 3, 3, 3), (2, 1, 2), (1, 2, 0), ONE),
    "patches": Case((2, 3, 4, 16, 16), (20, 3, 2, 8, 8), (2, 8, 8), NONE, ONE),
    "apart": Case((1, 4, 9, 8, 7), (5, 4, 3, 2, 3), ONE, (2, 0, 1), (2, 3, 1)),
    "depth alone": Case((2, 150, 6, 5, 7), (9, 150, 3, 1, 1), ONE, NONE, ONE),
    "depth alone, padded": Case((1, 8, 6, 5, 7), (9, 8, 3, 1, 1), ONE, (1, 0, 0), ONE),
    "images alone": Case((2, 4, 3, 9, 8), (6, 4, 1, 3, 3), ONE, (0, 1, 1), ONE),
    "points": Case((2, 6, 3, 4, 5), (7, 6, 1, 1, 1), ONE, NONE, ONE),
    "one number": Case((3, 6, 1, 1, 1), (7, 6, 1, 1, 1), ONE, NONE, ONE),
    "groups": Case((2, 6, 5, 6, 7), (9, 2, 3, 3, 3), ONE, ONE, ONE, groups=3),
    "each channel": Case((1, 8, 5, 6, 7), (8, 1, 3, 3, 3), (1, 2, 2), ONE, ONE, groups=8),
    "many channels": Case((1, 40, 4, 14, 14), (48, 40, 3, 3, 3), ONE, ONE, ONE),
    "windows that padding fills": Case((1, 3, 2, 2, 3), (4, 3, 3, 3, 3), ONE, (3, 2, 3), ONE),
}


def _close(found: Tensor, exact: Tensor, theirs: Tensor) -> None:
    assert found.shape == exact.shape
    allowed = 5 * (theirs - exact).abs().max() + 2e-6
    assert (found - exact).abs().max() <= allowed


@pytest.mark.parametrize("name", CASES)
def test_with_gradients(name: str) -> None:
    case = CASES[name]
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(case.image, generator=chance)
    w = torch.randn(case.weight, generator=chance)
    bias = torch.randn(case.weight[0], generator=chance)
    settings = _settings(case, False)
    grad = torch.randn(aten.convolution(x, w, None, *settings).shape, generator=chance)

    def function(x: Tensor, w: Tensor, bias: Tensor, grad: Tensor) -> list[Tensor]:
        gradients = aten.convolution_backward(grad, x, w, [w.shape[0]], *settings, [True] * 3)
        return [aten.convolution(x, w, bias, *settings), *gradients]

    given = [x, w, bias, grad]
    plan, executable = traced(function, given)
    # The input's gradient is a convolution of volumes too.
    assert kinds(plan)["tmb_convolution_3d"] == 2
    assert kinds(plan)["tmb_convolution_weight_gradient"] == 1
    found = executable(list(given))
    exact = function(*(v.double() for v in given))
    for each in zip(found, exact, function(*given), strict=True):
        _close(*each)


@pytest.mark.parametrize("name", ["every second", "patches", "apart", "groups"])
def test_transposed(name: str) -> None:
    case = CASES[name]
    chance = torch.Generator().manual_seed(0)
    x = torch.randn((case.image[0], case.weight[0], *case.image[2:]), generator=chance)
    w = torch.randn(case.weight, generator=chance)
    beyond = [max(s, d) - 1 for s, d in zip(case.stride, case.dilation, strict=True)]

    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        return [aten.convolution(x, w, None, *_settings(case, True, beyond))]

    plan, executable = traced(function, [x, w])
    assert kinds(plan)["tmb_convolution_3d"] == 1
    (found,) = executable([x, w])
    (exact,) = function(x.double(), w.double())
    _close(found, exact, function(x, w)[0])


def test_numbers_of_16_bits() -> None:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(1, 12, 5, 9, 8, generator=chance).bfloat16()
    w = torch.randn(10, 12, 3, 3, 3, generator=chance).bfloat16()

    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        return [torch.nn.functional.conv3d(x, w, padding=1)]

    plan, executable = traced(function, [x, w])
    assert kinds(plan)["tmb_convolution_3d"] == 1
    (found,) = executable([x, w])
    (exact,) = function(x.double(), w.double())
    theirs = (function(x, w)[0] - exact).abs().max()
    assert (found - exact).abs().max() <= 1.5 * theirs
