"""Convolutions of 3x3 windows with many channels, by fewer multiplications, beside float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engines.steps.plans import kinds, traced

_INFINITY = float("inf")


def _operands(
    batch: int, inputs: int, outputs: int, high: int, wide: int, seed: int = 0
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(batch, inputs, high, wide, generator=generator)
    weight = torch.randn(outputs, inputs, 3, 3, generator=generator) / (9 * inputs) ** 0.5
    return [x, weight, torch.randn(outputs, generator=generator)]


def _plain(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    return [F.conv2d(x, weight, bias, padding=1)]


def _ours(function: object, operands: list[Tensor]) -> Tensor:
    plan, executable = traced(function, operands)
    assert kinds(plan)["tmb_convolution"] == 1
    return executable(list(operands))[0]


@pytest.mark.parametrize(
    ("inputs", "outputs", "size"), [(1024, 512, 14), (1300, 201, 7), (770, 130, 30)]
)
def test_blocks_of_unequal_depth_stay_in_their_room(inputs: int, outputs: int, size: int) -> None:
    """Of fewer channels more columns are copied at a time."""
    x, weight, bias = _operands(1, inputs, outputs, size, size)
    weight = weight[..., :1, :1].contiguous()

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return [F.conv2d(x, weight, bias)]

    exact = F.conv2d(x.double(), weight.double(), bias.double())
    _, executable = traced(function, [x, weight, bias])
    for _ in range(4):
        found = executable([x, weight, bias])[0]
        assert (found - exact).abs().max() <= 1e-5


@pytest.mark.parametrize(
    ("batch", "inputs", "outputs", "high", "wide"),
    [
        (1, 32, 32, 1, 1),
        (1, 32, 32, 2, 70),
        (3, 33, 65, 7, 9),
        (8, 130, 129, 7, 7),
        (2, 96, 40, 14, 14),
        (1, 48, 100, 31, 33),
        (5, 256, 64, 5, 5),
    ],
)
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_any_size_is_as_near_to_float64_as_eager(
    batch: int, inputs: int, outputs: int, high: int, wide: int, padding: int
) -> None:
    if min(high, wide) + 2 * padding < 3:
        pytest.skip("no window fits")
    x, weight, bias = _operands(batch, inputs, outputs, high, wide)

    def function(x: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return [F.conv2d(x, weight, bias, padding=padding)]

    found = _ours(function, [x, weight, bias])
    exact = F.conv2d(x.double(), weight.double(), bias.double(), padding=padding)
    theirs = (F.conv2d(x, weight, bias, padding=padding) - exact).abs().max()
    assert (found - exact).abs().max() <= 3 * theirs + 2e-6


def test_what_follows_is_done_to_each_tile() -> None:
    x, weight, bias = _operands(3, 40, 72, 9, 11)
    rest = torch.randn(3, 72, 9, 11, generator=torch.Generator().manual_seed(1))

    def function(x: Tensor, weight: Tensor, bias: Tensor, rest: Tensor) -> list[Tensor]:
        return [F.relu(F.conv2d(x, weight, bias, padding=1) + rest)]

    found = _ours(function, [x, weight, bias, rest])
    exact = function(x.double(), weight.double(), bias.double(), rest.double())[0]
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("strange", [_INFINITY, -_INFINITY, float("nan"), 1e30, -3e38, 1e5])
@pytest.mark.parametrize("of", ["image", "weight"])
def test_a_strange_number_touches_no_window_but_its_own(strange: float, of: str) -> None:
    """What tiles have in common would spread it."""
    operands = _operands(8, 64, 64, 14, 14)
    operands[of == "weight"].view(-1)[4321] = strange
    found, expected = _ours(_plain, operands), _plain(*operands)[0]
    # Eager's own kernels do not multiply padding, which is 0, by a weight that is infinite.
    inner = (..., slice(1, -1), slice(1, -1))
    torch.testing.assert_close(found[inner], expected[inner], rtol=1e-4, atol=1e-4, equal_nan=True)


def test_rounding_of_large_numbers_stays_where_they_are() -> None:
    """The image is 1e5 in its first rows; the results of its last ones need no digits of those."""
    x, weight, bias = _operands(8, 64, 64, 14, 14)
    x[:, :, :7] *= 1e5
    found = _ours(_plain, [x, weight, bias])[:, :, 8:].double()
    exact = F.conv2d(x.double(), weight.double(), bias.double(), padding=1)[:, :, 8:]
    assert (found - exact).abs().max() < 1e-5
