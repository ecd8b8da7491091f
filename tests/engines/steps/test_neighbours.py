"""Passes that read the same memory run as one, where they may."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.engines.steps.plans import kinds, same_as_eager


def _whole(*shape: int) -> Tensor:
    """Small whole numbers: each order of additions gives the same bits."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).float()


def test_sums_of_the_same_are_one_pass() -> None:
    def sums(g: Tensor, x: Tensor) -> list[Tensor]:
        return [g.sum(1), (g * x).sum(1), g + 1]

    plan = same_as_eager(sums, [_whole(40, 600), _whole(40, 600)])
    assert sum(kinds(plan).values()) == 1


def test_small_passes_stay_apart() -> None:
    plan = same_as_eager(lambda g: [g.sum(1), g + 1], [_whole(4, 60)])
    assert sum(kinds(plan).values()) == 2


def test_a_pass_that_needs_the_other_comes_after_it() -> None:
    def function(x: Tensor, w: Tensor) -> list[Tensor]:
        y = torch.relu(x)
        return [(y @ w) * x, x.amax(1)]

    plan = same_as_eager(function, [_whole(160, 160), _whole(160, 160)])
    found = kinds(plan)
    assert sum(found.values()) == 3, found
    assert found["relu max"] + found["max relu"] == 1, found


def test_what_is_written_between_two_readers_keeps_them_apart() -> None:
    def function(x: Tensor) -> list[Tensor]:
        before = x * 2
        made = x + 1
        x.copy_(made)
        return [before, made * 3]

    same_as_eager(function, [_whole(150, 150)])


def test_readers_that_need_each_other_over_others_stay_apart() -> None:
    def function(u: Tensor, x: Tensor) -> list[Tensor]:
        first = u.neg()
        far = first.cumsum(0).cumsum(1)
        other = x.abs()
        return [u + other.cumsum(0), x * far, first.exp(), other.exp()]

    # Either both readers of `u` run as one, or both of `x`.
    same_as_eager(function, [_whole(140, 140), _whole(140, 140)])


def test_functions_of_a_few_numbers_do_not_keep_passes_apart() -> None:
    """The gradient of a batch norm whose statistics are given: what multiplies the gradient and
    what multiplies its sums have a factor in common."""

    def gradients(g: Tensor, x: Tensor, w: Tensor, v: Tensor) -> list[Tensor]:
        sums = (g * x).sum([0, 2, 3])
        factor = (v + 1).reciprocal()
        image = g * (factor * w)[:, None, None]
        return [image, sums * factor, g.sum([0, 2, 3])]

    image, channels = (8, 4, 30, 30), torch.tensor([0.0, 1.0, 3.0, 7.0])
    plan = same_as_eager(gradients, [_whole(*image), _whole(*image), _whole(4), channels])
    found = kinds(plan)
    assert sum("sum" in kind for kind in found if not kind.startswith("tmb")) == 1, found
    assert found["mul"] == 1, found  # of the sums: the gradient is multiplied where they are made


def test_functions_of_sums_stay_behind_them() -> None:
    def function(g: Tensor, w: Tensor) -> list[Tensor]:
        factor = (w + 1).reciprocal()
        return [g * (g.sum(1) * factor + factor)[:, None], g.amax(1)]

    same_as_eager(function, [_whole(64, 600), torch.full((64,), 3.0)])
