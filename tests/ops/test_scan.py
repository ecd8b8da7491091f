"""Running products, logarithms of sums and extremes: lines behind each other and beside each other,
some at a time and alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import traced

NAN, INF = float("nan"), float("inf")
SHAPES = {"behind": (37, 53), "beside": (2, 19, 83), "few": (2, 9, 3), "one": (1, 200)}
FUNCTIONS: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "products": lambda x: (torch.cumprod(x, 1),),
    "logarithms of sums": lambda x: (torch.logcumsumexp(x, 1),),
    "maxima": lambda x: tuple(torch.cummax(x, 1)),
    "minima": lambda x: tuple(torch.cummin(x, 1)),
}


def _spoiled(shape: tuple[int, ...]) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    flat = x.view(-1)
    flat[5::101], flat[7::83], flat[9::71] = NAN, INF, -INF
    # Equal neighbours: the last of them counts.
    return torch.where(x.abs() < 0.5, x.sign(), x)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats(name: str, shape: str) -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        return [*FUNCTIONS[name](x), *FUNCTIONS[name](y)]

    x = _spoiled(SHAPES[shape])
    inputs = [x, x.double()]
    _, executable = traced(function, inputs)
    torch.testing.assert_close(executable(list(inputs)), function(*inputs), equal_nan=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bfloat16])
def test_other_numbers(dtype: torch.dtype, shape: str) -> None:
    def function(x: Tensor) -> list[Tensor]:
        return [r for name in ("products", "maxima", "minima") for r in FUNCTIONS[name](x)]

    x = torch.randint(0, 7, SHAPES[shape], generator=torch.Generator().manual_seed(0)).to(dtype)
    _, executable = traced(function, [x])
    torch.testing.assert_close(executable([x]), function(x))
