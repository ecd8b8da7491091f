"""Activations that convolutions end with."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engines.steps.plans import kinds, traced

_ACTIVATIONS = (
    F.relu, F.relu6, F.hardsigmoid, F.hardswish, F.silu, F.gelu,
    partial(F.gelu, approximate="tanh"),
)  # fmt: skip
_NUMBERS = (
    0.0, -0.0, 1e-40, -1e-40, 0.3, -0.3, 3.0, -3.0, 5.9, 6.0, 6.1, -5.9, -6.1, 40.0, -40.0, 1e30,
    -1e30, math.inf, -math.inf, math.nan, 2.5,
)  # fmt: skip


def _each(x: Tensor, weights: Tensor) -> list[Tensor]:
    # Weights of its own for each, or equal convolutions would be one.
    return [f(F.conv2d(x, w)) for f, w in zip(_ACTIVATIONS, weights, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("outputs", [1, 5])
@pytest.mark.parametrize("pixels", [1, len(_NUMBERS)])
def test_they_make_of_any_number_what_torch_makes(
    dtype: torch.dtype, outputs: int, pixels: int
) -> None:
    x = torch.tensor(_NUMBERS, dtype=dtype).reshape(-1, 1, 1, pixels)
    weights = torch.ones(len(_ACTIVATIONS), outputs, 1, 1, 1, dtype=dtype)
    plan, executable = traced(_each, [x, weights])
    assert kinds(plan)["tmb_convolution"] == len(_ACTIVATIONS)
    if dtype == torch.float32:
        assert {*kinds(plan)} == {"tmb_convolution"}
    found = executable([x, weights])
    for f, actual, expected in zip(_ACTIVATIONS, found, _each(x, weights), strict=True):
        torch.testing.assert_close(actual, expected, equal_nan=True, msg=lambda m, f=f: f"{f}: {m}")
