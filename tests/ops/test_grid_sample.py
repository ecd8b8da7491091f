"""Grid sampling and its gradients, also of NaN and infinite pixels and positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.beside_eager import assert_as_eager
from tests.support.groups import compile_group
from tests.support.images import IMAGES, VOLUMES, random, spoiled

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
Case = tuple[Callable[..., Any], list[torch.Tensor]]


def _sampling() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for spatial, modes in ((2, (0, 1, 2)), (3, (0, 1, 2))):
        forward = getattr(aten, f"grid_sampler_{spatial}d")
        backward = getattr(aten, f"grid_sampler_{spatial}d_backward")
        shape = IMAGES if spatial == 2 else VOLUMES
        out = [5, 8, 3][:spatial]
        grid = random(2, *out, spatial) * 0.9
        for mode in modes:
            settings = [(mode, padding, align) for padding in range(3) for align in (False, True)]
            cases[f"grid_{spatial}d_{mode}"] = (
                lambda x, g, f=forward, s=settings: [f(x, g, *a) for a in s],
                [random(*shape), grid],
            )
            cases[f"grid_{spatial}d_{mode}_backward"] = (
                lambda y, x, g, f=backward, s=settings: [
                    t for a in s for t in f(y, x, g, *a, [True, True])
                ],
                [random(*shape[:2], *out), random(*shape), grid],
            )
        cases[f"grid_{spatial}d_spoiled"] = (
            lambda x, g, f=forward, m=modes: [f(x, g, n, p, False) for n in m for p in range(3)],
            [spoiled(*shape), spoiled(2, *out, spatial)],
        )
        cases[f"grid_{spatial}d_image_only"] = (
            lambda y, x, g, f=backward: f(y, x, g, 0, 0, False, [True, False])[0],
            [random(*shape[:2], *out), random(*shape), grid],
        )
        cases[f"grid_{spatial}d_grid_only"] = (
            lambda y, x, g, f=backward: f(y, x, g, 0, 0, False, [False, True])[1],
            [random(*shape[:2], *out), random(*shape), grid],
        )
    cases["grid_one_pixel"] = (
        lambda x, g: [aten.grid_sampler_2d(x, g, 0, p, a) for p in range(3) for a in (False, True)],
        [random(2, 3, 1, 1), random(2, 5, 8, 2)],
    )
    cases["grid_of_many_positions"] = (
        lambda y, x, g: [
            aten.grid_sampler_2d(x, g, 0, 1, False),
            *aten.grid_sampler_2d_backward(y, x, g, 0, 1, False, [True, True]),
        ],
        [random(2, 3, 13, 23), random(2, 3, 9, 17), random(2, 13, 23, 2)],
    )
    cases["grid_empty"] = (
        lambda x, g: aten.grid_sampler_2d(x, g, 0, 0, False),
        [random(0, 3, 4, 4), random(0, 5, 8, 2)],
    )
    return cases


CASES = _sampling()


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("grid_sample", weight=3)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_many_positions_and_channels(mode: str) -> None:
    """More of both than are taken at a time, some of them outside."""

    def sampled(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, grid, mode=mode, align_corners=False)

    assert_as_eager(sampled, random(1, 70, 9, 10), random(1, 13, 23, 2) * 1.3, rtol=1e-4, atol=1e-4)
