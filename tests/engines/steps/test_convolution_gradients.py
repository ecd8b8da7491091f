"""Gradients of convolutions and transposed convolutions on the steps engine, beside float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import kinds, traced

aten = torch.ops.aten


@dataclass(frozen=True)
class Case:
    """Sizes of an image ``[batch, channels, *spatial]`` and of weights ``[outputs, ...]``."""

    image: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1


CASES = {
    "3x3": Case((2, 5, 9, 11), (7, 5, 3, 3), padding=(1, 1)),
    "3x3, by fewer multiplications": Case((8, 64, 14, 14), (64, 64, 3, 3), padding=(1, 1)),
    "1x1": Case((3, 6, 8, 8), (13, 6, 1, 1)),
    "1x1, every second": Case((3, 6, 9, 8), (13, 6, 1, 1), (2, 2)),
    "7x7, every second": Case((2, 3, 33, 35), (8, 3, 7, 7), (2, 2), (3, 3)),
    "long rows": Case((2, 2, 3, 2100), (3, 2, 2, 3), padding=(0, 1)),
    "many small images": Case((70, 8, 5, 5), (9, 8, 3, 3), padding=(1, 1)),
    "a large image": Case((1, 4, 90, 80), (5, 4, 3, 3), padding=(1, 1)),
    "groups": Case((2, 6, 10, 10), (9, 2, 3, 3), padding=(1, 1), groups=3),
    "each channel": Case((2, 8, 12, 12), (8, 1, 3, 3), (2, 2), (1, 1), groups=8),
    "two of each channel": Case((2, 3, 7, 7), (6, 1, 5, 5), padding=(2, 2), groups=3),
    "apart": Case((2, 4, 15, 16), (5, 4, 3, 2), (3, 2), (2, 1), (2, 3)),
    "strides that share a factor with what is apart": Case(
        (1, 2, 17, 19), (3, 2, 3, 3), (4, 2), (3, 2), (2, 4)
    ),
    "more stride than window": Case((2, 3, 11, 13), (4, 3, 2, 1), (5, 3)),
    "pixels that no window reaches": Case((1, 2, 10, 9), (3, 2, 3, 3), (4, 4)),
    "windows that padding fills": Case((2, 3, 2, 3), (4, 3, 3, 3), (1, 1), (3, 4)),
    "one dimension": Case((2, 4, 50), (6, 4, 5), (2,), (2,), (1,)),
    "one pixel": Case((4, 20, 1, 1), (33, 20, 1, 1)),
    "no images": Case((0, 3, 8, 8), (4, 3, 3, 3)),
}


def _settings(case: Case, transposed: bool, beyond: list[int] | None = None) -> tuple:
    none = [0] * len(case.stride)
    settings = [list(v) for v in (case.stride, case.padding, case.dilation)]
    return (*settings, transposed, beyond or none, case.groups)


def _close(found: Tensor, exact: Tensor, theirs: Tensor) -> None:
    assert found.shape == exact.shape
    allowed = 3 * (theirs - exact).abs().max() if exact.numel() else 0
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=float(allowed) + 2e-6)


@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str) -> None:
    case = CASES[name]
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(case.image, generator=chance)
    w = torch.randn(case.weight, generator=chance)
    grad = torch.randn(
        aten.convolution(x, w, None, *_settings(case, False)).shape, generator=chance
    )

    def function(grad: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
        settings = _settings(case, False)
        return list(aten.convolution_backward(grad, x, w, [w.shape[0]], *settings, [True] * 3))

    plan, executable = traced(function, [grad, x, w])
    if 0 not in case.image:
        assert kinds(plan)["tmb_convolution_weight_gradient"] == 1
        assert kinds(plan)["tmb_convolution_transposed"] == 1
    found = executable([grad, x, w])
    exact = function(grad.double(), x.double(), w.double())
    for each in zip(found, exact, function(grad, x, w), strict=True):
        _close(*each)


@pytest.mark.parametrize("name", [n for n in CASES if n != "no images"])
@pytest.mark.parametrize("biased", [False, True])
def test_transposed(name: str, biased: bool) -> None:
    """And what lies past the last window, as much as may be."""
    case = CASES[name]
    chance = torch.Generator().manual_seed(0)
    outputs = case.weight[1] * case.groups
    x = torch.randn((case.image[0], case.weight[0], *case.image[2:]), generator=chance)
    w = torch.randn(case.weight, generator=chance)
    bias = torch.randn(outputs, generator=chance)
    beyond = [max(s, d) - 1 for s, d in zip(case.stride, case.dilation, strict=True)]
    sizes = [
        (n - 1) * s - 2 * p + d * (k - 1) + 1 + b
        for n, s, p, d, k, b in zip(
            case.image[2:], case.stride, case.padding, case.dilation, case.weight[2:], beyond,
            strict=True,
        )
    ]  # fmt: skip
    if min(sizes) < 1:
        pytest.skip("nothing is left of the result")

    def function(x: Tensor, w: Tensor, bias: Tensor) -> list[Tensor]:
        settings = _settings(case, True, beyond)
        return [aten.convolution(x, w, bias if biased else None, *settings)]

    plan, executable = traced(function, [x, w, bias])
    assert kinds(plan)["tmb_convolution_transposed"] == 1
    (found,) = executable([x, w, bias])
    (exact,) = function(x.double(), w.double(), bias.double())
    _close(found, exact, function(x, w, bias)[0])


def test_gradients_of_the_transposed() -> None:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(2, 4, 6, 5, generator=chance)
    w = torch.randn(4, 3, 3, 4, generator=chance)
    settings = ([2, 3], [1, 0], [1, 2], True, [1, 0], 1)
    shape = aten.convolution(x, w, None, *settings).shape
    grad = torch.randn(shape, generator=chance)

    def function(grad: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
        return list(aten.convolution_backward(grad, x, w, [3], *settings, [True] * 3))

    _, executable = traced(function, [grad, x, w])
    found = executable([grad, x, w])
    exact = function(grad.double(), x.double(), w.double())
    for each in zip(found, exact, function(grad, x, w), strict=True):
        _close(*each)


def test_any_sizes() -> None:
    """Those of gradient and images are symbols."""
    case = CASES["7x7, every second"]
    w = torch.randn(case.weight)

    def function(grad: Tensor, x: Tensor) -> list[Tensor]:
        of = w.to(x.dtype)
        settings = _settings(case, False)
        return list(aten.convolution_backward(grad, x, of, [8], *settings, [True] * 3))

    def operands(batch: int, high: int, wide: int) -> list[Tensor]:
        x = torch.randn(batch, 3, high, wide)
        result = aten.convolution(x, w, None, *_settings(case, False))
        return [torch.randn_like(result), x]

    _, executable = traced(function, operands(2, 20, 23), dynamic=True)
    for sizes in ((2, 20, 23), (1, 30, 17), (3, 18, 9)):  # even and odd, as was traced
        given = operands(*sizes)
        found = executable(list(given))
        exact = function(*[v.double() for v in given])
        for each in zip(found, exact, function(*given), strict=True):
            _close(*each)
