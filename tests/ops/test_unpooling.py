"""Gradients of pooling, unpooling, fractional pooling and sliding windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.groups import compile_group
from tests.support.images import IMAGES, VOLUMES, random, spoiled

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
Case = tuple[Callable[..., Any], list[torch.Tensor]]


def _pooled_backward(pool: Any, backward: Any, x: torch.Tensor, *settings: Any) -> torch.Tensor:
    values, indices = pool(x, *settings)
    return backward(values * 2, x, *settings, indices)


def _pooling() -> dict[str, Case]:
    image, volume = spoiled(*IMAGES), spoiled(*VOLUMES)
    samples = torch.rand(2, 3, 3, generator=torch.Generator().manual_seed(0))
    return {
        "max_pool2d_backward": (
            lambda x: _pooled_backward(
                aten.max_pool2d_with_indices,
                aten.max_pool2d_with_indices_backward,
                x, [3, 2], [2, 1], [1, 1], [1, 2], True,
            ),
            [random(*IMAGES)],
        ),
        "max_pool3d_backward": (
            lambda x: _pooled_backward(
                aten.max_pool3d_with_indices,
                aten.max_pool3d_with_indices_backward,
                x, [2, 3, 2], [1, 2, 2], [1, 1, 0], [1, 1, 1], False,
            ),
            [random(*VOLUMES)],
        ),
        "adaptive_max_pool_backward": (
            lambda x, y: (
                _pooled_backward(
                    lambda x: aten.adaptive_max_pool2d(x, [3, 4]),
                    aten.adaptive_max_pool2d_backward,
                    x,
                ),
                _pooled_backward(
                    lambda x: aten.adaptive_max_pool3d(x, [3, 1, 4]),
                    aten.adaptive_max_pool3d_backward,
                    y,
                ),
            ),
            [random(*IMAGES), random(*VOLUMES)],
        ),
        "avg_pool2d_backward": (
            lambda x, g: (
                aten.avg_pool2d_backward(g, x, [3, 2], [2, 2], [1, 1], False, True, None),
                aten.avg_pool2d_backward(g, x, [3, 2], [2, 2], [1, 1], False, False, None),
                aten.avg_pool2d_backward(g, x, [3, 2], [2, 2], [1, 1], False, True, 5),
            ),
            [image, random(2, 3, 4, 5)],
        ),
        "avg_pool3d_backward": (
            lambda x, g: aten.avg_pool3d_backward(
                g, x, [2, 2, 2], [2, 2, 2], [0, 1, 0], True, False, None
            ),
            [volume, random(2, 2, 2, 3, 3)],
        ),
        "adaptive_avg_pool_backward": (
            lambda x, g, y, h: (
                aten._adaptive_avg_pool2d_backward(g, x),
                aten._adaptive_avg_pool3d_backward(h, y),
            ),
            [image, random(2, 3, 3, 5), volume, random(2, 2, 3, 1, 4)],
        ),
        "fractional_max_pool2d": (
            lambda x, s: aten.fractional_max_pool2d(x, [2, 3], [4, 5], s[:, :, :2]),
            [image, samples],
        ),
        "fractional_max_pool3d": (
            lambda x, s: aten.fractional_max_pool3d(x, [2, 2, 2], [2, 3, 1], s[:, :2]),
            [volume, samples],
        ),
        # torch traces this one with static sizes only.
        "fractional_max_pool_backward": (
            lambda x, s, y: (
                aten.fractional_max_pool2d_backward(
                    aten.fractional_max_pool2d(x, [2, 3], [4, 5], s[:, :, :2])[0],
                    x, [2, 3], [4, 5],
                    aten.fractional_max_pool2d(x, [2, 3], [4, 5], s[:, :, :2])[1],
                ),
                aten.fractional_max_pool3d_backward(
                    aten.fractional_max_pool3d(y, [2, 2, 2], [2, 3, 1], s[:, :2])[0],
                    y, [2, 2, 2], [2, 3, 1],
                    aten.fractional_max_pool3d(y, [2, 2, 2], [2, 3, 1], s[:, :2])[1],
                ),
            ),
            [random(*IMAGES), samples, random(*VOLUMES)],
        ),
        "unfold": (
            lambda x, y: (
                aten.im2col(x, [3, 2], [1, 2], [1, 0], [2, 1]),
                aten.im2col(x, [2, 2], [3, 1], [0, 3], [1, 2]),
                aten.im2col(y, [1, 1], [1, 1], [0, 0], [1, 1]),
            ),
            [image, spoiled(3, 4, 5)],
        ),
        "fold": (
            lambda x: (
                aten.col2im(x, [7, 9], [3, 2], [1, 2], [1, 0], [2, 1]),
                aten.col2im(x[0], [7, 9], [3, 2], [1, 2], [1, 0], [2, 1]),
            ),
            [random(2, 18, 28)],
        ),
    }  # fmt: skip


CASES = _pooling()


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("unpooling", weight=3)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=2e-5)


@compile_group("unpooling", weight=1)
def test_positions_outside_a_plane_raise() -> None:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together
    from torch_max_backend.errors import ExecutionError

    places = torch.tensor([[[[0, 99]]]])
    program = Program(
        "unpool", lambda x, i: aten.max_unpool2d(x, i, [2, 2]), [torch.ones(1, 1, 1, 2), places]
    )
    compile_together([program])
    with pytest.raises(ExecutionError, match="invalid max index 99"):
        program.run()


def test_volumes_without_a_batch_are_pooled_as_eager_does() -> None:
    """torch draws for each channel as if it was a batch, and reads the first."""
    torch.manual_seed(0)
    x, samples = torch.randn(3, 6, 7, 5), torch.rand(3, 3, 3)

    def pooled(x: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        given = {"output_size": (2, 3, 2), "_random_samples": samples}
        return torch.nn.functional.fractional_max_pool3d(x, 2, **given)

    options = {"engine": "steps", "fallback": "error", "min_ops": 1}
    compiled = torch.compile(pooled, backend="max", options=options)
    torch.testing.assert_close(compiled(x, samples), pooled(x, samples), rtol=0, atol=0)
