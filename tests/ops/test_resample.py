"""Resizing of images where op_db does not reach: filters, gradients, given scales, bytes, NaN and
infinite pixels, sizes of one, empty batches."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.groups import compile_group
from tests.support.images import IMAGES, ROWS, VOLUMES, random, spoiled
from torch_max_backend.compat.torch_versions import LANCZOS

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
Case = tuple[Callable[..., Any], list[torch.Tensor]]


_NEAREST = {
    "upsample_nearest1d": (ROWS, [25]),
    "_upsample_nearest_exact1d": (ROWS, [6]),
    "upsample_nearest2d": (IMAGES, [14, 5]),
    "_upsample_nearest_exact2d": (IMAGES, [3, 30]),
    "upsample_nearest3d": (VOLUMES, [7, 5, 3]),
    "_upsample_nearest_exact3d": (VOLUMES, [2, 9, 12]),
}
_FILTERED = {
    "upsample_linear1d": (ROWS, [25]),
    "upsample_bilinear2d": (IMAGES, [14, 5]),
    "upsample_bicubic2d": (IMAGES, [5, 31]),
    "upsample_trilinear3d": (VOLUMES, [7, 5, 3]),
    "_upsample_bilinear2d_aa": (IMAGES, [3, 20]),
    "_upsample_bicubic2d_aa": (IMAGES, [10, 4]),
}
# Only where torch has it.
_FILTERED |= {packet.__name__: (IMAGES, [3, 12]) for packet in LANCZOS}


def _resizing() -> dict[str, Case]:
    cases: dict[str, Case] = {}
    for name, (shape, size) in _NEAREST.items():
        scales = [o / i * 1.01 for o, i in zip(size, shape[2:], strict=True)]
        forward, backward = getattr(aten, name), getattr(aten, f"{name}_backward")
        cases[name] = (
            lambda x, f=forward, n=size, s=scales: (f(x, n), f(x, n, *s)),
            [spoiled(*shape)],
        )
        cases[f"{name}_backward"] = (
            lambda g, f=backward, n=size, i=shape, s=scales: (f(g, n, i), f(g, n, i, *s)),
            [random(*shape[:2], *size)],
        )
    for name, (shape, size) in _FILTERED.items():
        scales = [o / i * 1.01 for o, i in zip(size, shape[2:], strict=True)]
        forward, backward = getattr(aten, name), getattr(aten, f"{name}_backward")
        cases[name] = (
            lambda x, y, f=forward, n=size, s=scales: (
                f(x, n, False),
                f(x, n, True),
                f(x, n, False, *s),
                f(y, n, False),
            ),
            [random(*shape), spoiled(*shape)],
        )
        cases[f"{name}_backward"] = (
            lambda g, f=backward, n=size, i=shape, s=scales: (
                f(g, n, i, False),
                f(g, n, i, True),
                f(g, n, i, False, *s),
            ),
            [random(*shape[:2], *size)],
        )
        if name.endswith(("linear2d", "linear2d_aa", "cubic2d_aa")):
            cases[f"{name}_bytes"] = (
                lambda x, f=forward, n=size: (f(x, n, False), f(x, n, True)),
                [random(*shape, dtype=torch.uint8)],
            )
    cases["same_size"] = (
        lambda x: (
            aten._upsample_bicubic2d_aa(x, [7, 9], False, 1.1, 1.1),
            aten.upsample_nearest2d(x, [7, 9], 1.1, 1.1),
        ),
        [spoiled(*IMAGES)],
    )
    cases["one_pixel"] = (
        lambda x, y: (
            aten.upsample_bilinear2d(x, [4, 5], True),
            aten.upsample_bicubic2d(y, [1, 1], False),
            aten._upsample_bilinear2d_aa(y, [1, 1], False),
        ),
        [random(2, 3, 1, 1), random(*IMAGES)],
    )
    cases["empty_batch"] = (
        lambda x: aten.upsample_bilinear2d(x, [4, 5], True),
        [random(0, 3, 7, 9)],
    )
    cases["double"] = (
        lambda x: (
            aten.upsample_bicubic2d(x, [11, 4], False),
            aten.upsample_nearest1d(x[0], [21]),
        ),
        [random(*IMAGES, dtype=torch.float64)],
    )
    cases["large_plane"] = (
        lambda x: (
            aten.upsample_nearest2d(x, [130, 170], 2.03, 2.03),
            aten.upsample_bilinear2d(x, [90, 41], False),
        ),
        [random(1, 1, 65, 85)],
    )
    return cases


CASES = _resizing()


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("resample", weight=5)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=2e-5)
