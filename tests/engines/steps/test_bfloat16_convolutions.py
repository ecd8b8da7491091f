"""Convolutions and attention of bfloat16 where a CPU multiplies pairs, beside float64 and eager."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engines.steps.plans import kinds, traced
from torch_max_backend.driver import passes
from torch_max_backend.engines.steps import families, instructions

_NORM = torch.ops.aten._native_batch_norm_legit_no_training


@pytest.fixture(autouse=True, params=["dots", "tiles"])
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each kind of instructions that the CPU has, also if another is faster."""
    unit: str = request.param
    if unit == "dots" and "avx512_bf16" not in instructions.flags():
        pytest.skip("this CPU has no dot products of bfloat16")
    if unit == "tiles" and instructions.bfloat16_unit() != "tiles":
        pytest.skip("this CPU has no tiles of bfloat16")
    for module in (instructions, passes):
        monkeypatch.setattr(module, "bfloat16_unit", lambda: unit)
    families._environment.cache_clear()
    yield unit
    families._environment.cache_clear()


@dataclass(frozen=True)
class Case:
    """Sizes of images ``[batch, channels, *spatial]`` and of weights ``[outputs, ...]``."""

    image: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int = 1
    padding: int | tuple[int, int] = 0
    dilation: int = 1
    groups: int = 1


CASES = {
    "3x3": Case((2, 8, 9, 11), (6, 8, 3, 3), padding=1),
    "an odd channel": Case((2, 5, 9, 10), (6, 5, 3, 3), padding=1),
    "1x1": Case((1, 256, 14, 14), (64, 256, 1, 1)),
    "1x1 of odd channels": Case((3, 33, 7, 7), (64, 33, 1, 1)),
    "1x1, every second": Case((3, 34, 14, 15), (64, 34, 1, 1), 2),
    "7x7, every second": Case((1, 3, 64, 66), (16, 3, 7, 7), 2, 3),
    "every third": Case((1, 6, 32, 33), (16, 6, 3, 3), 3, 1),
    "apart": Case((1, 6, 32, 33), (16, 6, 3, 3), padding=2, dilation=2),
    "small images": Case((4, 200, 7, 7), (190, 200, 3, 3), padding=1),
    "padding on one side": Case((2, 4, 9, 10), (6, 4, 3, 3), padding=(2, 0)),
    "groups": Case((2, 8, 9, 10), (6, 4, 3, 3), padding=1, groups=2),
    "each channel": Case((2, 8, 9, 10), (8, 1, 3, 3), padding=1, groups=8),
    "one pixel": Case((4, 20, 1, 1), (33, 20, 1, 1)),
    "few pixels": Case((1, 2, 2, 3), (40, 2, 3, 3), padding=1),
    "one row": Case((1, 40, 1, 70), (40, 40, 3, 3), padding=1),
    "one dimension": Case((2, 6, 50), (8, 6, 5), padding=2),
}


def _operands(case: Case) -> list[Tensor]:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(case.image, generator=chance)
    terms = torch.Size(case.weight[1:]).numel()
    w = torch.randn(case.weight, generator=chance) / terms**0.5
    return [x.bfloat16(), w.bfloat16(), torch.randn(case.weight[0], generator=chance).bfloat16()]


def _near(found: Tensor, exact: Tensor, theirs: Tensor) -> None:
    assert found.shape == theirs.shape
    assert (found - exact).abs().max() <= 1.5 * (theirs - exact).abs().max() + 1e-6


@pytest.mark.parametrize("name", CASES)
def test_convolutions(name: str) -> None:
    case = CASES[name]

    def function(x: Tensor, w: Tensor, bias: Tensor) -> list[Tensor]:
        convolve = F.conv1d if x.dim() == 3 else F.conv2d
        settings = (case.stride, case.padding, case.dilation, case.groups)
        return [convolve(x, w, bias, *settings)]

    given = _operands(case)
    plan, executable = traced(function, given)
    assert kinds(plan)["tmb_convolution"] == 1
    (found,) = executable(list(given))
    (exact,) = function(*(v.double() for v in given))
    _near(found, exact, function(*given)[0])


@pytest.mark.parametrize("biased", [False, True])
def test_what_follows_is_rounded_as_in_eager(biased: bool) -> None:
    case = Case((2, 24, 13, 12), (20, 24, 3, 3), padding=1)
    chance = torch.Generator().manual_seed(1)
    numbers = [torch.randn(20, generator=chance).bfloat16() for _ in range(3)]
    variance = torch.rand(20, generator=chance).bfloat16() + 0.5
    other = torch.randn(2, 20, 13, 12, generator=chance).bfloat16()

    def function(x: Tensor, w: Tensor, bias: Tensor, other: Tensor, *norm: Tensor) -> list[Tensor]:
        y = F.conv2d(x, w, bias if biased else None, padding=1)
        mean, variance, scale, shift = norm
        normed = _NORM(y, scale, shift, mean, variance, 0.1, 1e-5)[0]
        return [F.relu(normed + other)]

    given = [*_operands(case), other, numbers[0], variance, *numbers[1:]]
    plan, executable = traced(function, given)
    assert kinds(plan)["tmb_convolution"] == 1
    (found,) = executable(list(given))
    (theirs,) = function(*given)
    # Sums in another order round the other way now and then.
    assert (found != theirs).float().mean() < 0.02
    torch.testing.assert_close(found, theirs, rtol=2**-6, atol=2**-6)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    chance = torch.Generator().manual_seed(2)
    given = [torch.randn(2, 3, 70, 64, generator=chance).bfloat16() for _ in range(3)]

    def function(q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
        return [F.scaled_dot_product_attention(q, k, v, is_causal=causal)]

    plan, executable = traced(function, given)
    assert kinds(plan)["tmb_attention"] == 1
    (found,) = executable(list(given))
    (exact,) = function(*(v.double() for v in given))
    _near(found, exact, function(*given)[0])


_MASKS = {
    "none": None,
    "a part of a cache": (torch.arange(77) < 29)[None, None, None],
    "numbers": torch.linspace(-2, 1, 5 * 77).reshape(1, 1, 5, 77).bfloat16(),
    "a row without keys": (torch.arange(5) != 3)[None, None, :, None].expand(1, 1, 5, 77),
}


@pytest.mark.parametrize("mask", _MASKS)
def test_attention_of_few_queries(mask: str) -> None:
    """Heads share keys; one query or some, read with all keys of a cache or a part of them."""
    chance = torch.Generator().manual_seed(3)
    allowed = _MASKS[mask]
    queries = 1 if allowed is not None and allowed.shape[2] == 1 else 5
    q = torch.randn(2, 6, queries, 40, generator=chance).bfloat16()
    k, v = (torch.randn(2, 2, 77, 40, generator=chance).bfloat16() for _ in range(2))

    def function(q: Tensor, k: Tensor, v: Tensor, *mask: Tensor) -> list[Tensor]:
        given = mask[0] if mask else None
        return [F.scaled_dot_product_attention(q, k, v, given, enable_gqa=True)]

    given = [q, k, v] if allowed is None else [q, k, v, allowed]
    plan, executable = traced(function, given)
    assert kinds(plan)["tmb_attention"] == 1
    (found,) = executable(list(given))
    exact = [x.double() if x.is_floating_point() else x for x in given]
    _near(found, function(*exact)[0], function(*given)[0])
