"""Memory that copies put together: copies of it read what it was made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from tests.engines.steps.plans import kinds, same_as_eager

X = torch.arange(4.0 * 3 * 40 * 36).reshape(4, 3, 40, 36)
Function = Callable[[torch.Tensor], torch.Tensor]


def _around(x: torch.Tensor, dim: int) -> torch.Tensor:
    size = x.shape[dim]
    return torch.cat([x.narrow(dim, size - 2, 2), x, x.narrow(dim, 0, 1)], dim)


@pytest.mark.parametrize(
    ("function", "copies"),
    [
        pytest.param(lambda x: x.roll((-3, 5), (2, 3)), 4, id="roll"),
        pytest.param(lambda x: _around(_around(x, 3), 2), 9, id="circular"),
        pytest.param(lambda x: torch.cat([x, x], 2).flip(2)[:, 1:], 2, id="turned round"),
    ],
)
def test_one_copy_of_each_part(function: Function, copies: int) -> None:
    assert kinds(same_as_eager(lambda x: [function(x)], (X,)))["copy"] == copies


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_a_padding_by_what_is_there_is_one_kernel(mode: str) -> None:
    padded = kinds(same_as_eager(lambda x: [pad(x, (2, 1, 3, 1), mode=mode)], (X,)))
    assert padded == {"tmb_padded": 1}


def test_a_concatenation_of_concatenations_is_one_program() -> None:
    def quarters(x: torch.Tensor) -> list[torch.Tensor]:
        rows = torch.cat([x, x * 2], 3), torch.cat([-x, x], 3)
        return [torch.cat(rows, 2)]

    assert kinds(same_as_eager(quarters, (X,))) == {"mul negative": 1}


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x, y: [(z := torch.cat([x, y], 1)).roll(2, 1), z.sum(1)], id="a sum"),
        pytest.param(lambda x, y: [(z := torch.cat([x, y], 1)), z.roll(2, 1)], id="a result"),
        pytest.param(
            lambda x, y: [torch.cat([x, y], 1).roll(3, 2).view(4, -1, 6).roll(1, 2)],
            id="other dims",
        ),
    ],
)
def test_what_else_reads_it_finds_it(function: Callable[..., Any]) -> None:
    same_as_eager(function, (X, -X))


def test_arguments_are_stored_from_what_they_were() -> None:
    def turned(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        a, b = x.roll((1, 2), (2, 3)), y.roll((3, 4), (2, 3))
        kept = torch.cat([x, y], 1)[:, 1:5].clone()
        x.copy_(b)
        y.copy_(a)
        return [kept]

    same_as_eager(turned, (X, -X))

    def inside(x: torch.Tensor) -> list[torch.Tensor]:
        x.copy_(x.roll((1, 2), (2, 3)))
        return [x + 1]

    same_as_eager(inside, (X,))


def _grown(random: Random, x: torch.Tensor) -> torch.Tensor:
    """A tensor of four dims made of another one by one operation that moves elements."""
    dims = [i for i in range(4) if x.shape[i] > 2]
    dim = random.choice(dims)
    size = x.shape[dim]
    at = random.randrange(1, size)
    kind = random.randrange(8)
    if kind == 0:
        return x.roll((at, 1), (dim, random.choice(dims)))
    if kind == 1:
        return torch.cat([x.narrow(dim, at, size - at), x + 1, x.narrow(dim, 0, at)], dim)
    if kind == 2:
        return x.narrow(dim, at // 2, max(3, size - at)) if size > 5 else x
    if kind == 3:
        part = x.narrow(dim, 0, 1)
        return torch.cat([part.expand(*x.shape[:dim], 3, *x.shape[dim + 1 :]), x], dim)
    if kind == 4:
        return torch.cat([x.flip(dim), x], dim)
    if kind == 5:
        return x.transpose(dim, random.choice(dims))
    if kind == 6 and min(x.shape[2:]) > 2:
        return pad(x, (1, 2, 2, 0), mode=random.choice(("reflect", "replicate")))
    return torch.slice_scatter(x, x.narrow(dim, 0, at) * 2, dim, size - at, size)


def _chain(seed: int, x: torch.Tensor) -> torch.Tensor:
    random = Random(seed)
    for _ in range(5):
        x = _grown(random, x)
    return x


def _chains(seeds: list[int], x: torch.Tensor) -> list[torch.Tensor]:
    return [_chain(seed, x) for seed in seeds]


def test_random_chains() -> None:
    x = X[:, :, :12, :10].contiguous()
    seeds = [seed for seed in range(300) if 4096 < _chain(seed, x).numel() < 60_000][:40]
    copies = 0
    for first in range(0, len(seeds), 10):
        some = seeds[first : first + 10]

        copies += kinds(same_as_eager(partial(_chains, some), (x,)))["copy"]
    assert copies > 100
