"""Running products, logarithms of sums and extremes: lines behind each other and beside each other,
some at a time and alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import kinds, same_as_eager, traced

NAN, INF = float("nan"), float("inf")
# Lines of the middle dim.
SHAPES = {
    "behind each other": (37, 53, 1), "beside each other": (2, 19, 83), "a few": (2, 9, 3),
    "alone": (1, 200, 1),
}  # fmt: skip


def _scans(x: Tensor, y: Tensor, n: Tensor) -> list[Tensor]:
    """In one plan, so that all kernels are built at once."""
    found = [
        x.cumprod(1), x.logcumsumexp(1), *x.cummax(1), *x.cummin(1), y.cumprod(1), *y.cummax(1),
        n.cumprod(1), *n.cummin(1),
    ]  # fmt: skip
    return [r.clone() for r in found]


@pytest.mark.parametrize("other", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_values_are_eagers(shape: str, other: torch.dtype) -> None:
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(SHAPES[shape], generator=chance)
    # Of equal neighbours the last counts, and of NaNs.
    x = torch.where(x.abs() < 0.5, x.sign(), x)
    flat = x.view(-1)
    flat[5::101], flat[7::83], flat[9::71] = NAN, INF, -INF
    integer = torch.uint8 if other == torch.float64 else torch.int64
    n = torch.randint(0, 7, x.shape, generator=chance).to(integer)
    inputs = [x, x.to(other), n]
    _, executable = traced(_scans, inputs)
    torch.testing.assert_close(executable([*inputs]), _scans(*inputs), equal_nan=True)


def test_a_running_sum_of_one_element_is_part_of_a_program() -> None:
    x = torch.randn(5, 1, 7)
    x[0, 0, 0] = -0.0
    plan = same_as_eager(lambda x: [x.cumsum(1), x.cumsum(1) * 2], [x])
    assert "tmb_cumsum" not in kinds(plan)
    [once] = traced(lambda x: [x.cumsum(1)], [x])[1]([x])
    assert not once.signbit()[0, 0, 0]  # 0 + -0


def _with_zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Lines with no 0, with one at any place, and with several."""
    chance = torch.Generator().manual_seed(1)
    x = torch.rand(shape, generator=chance, dtype=dtype) + 0.5
    count = torch.arange(shape[0] * shape[2]).reshape(shape[0], 1, shape[2])
    place = torch.arange(shape[1]).view(1, -1, 1)
    x[(count % 3 == 1) & (place == count % shape[1])] = 0
    x[(count % 7 == 2) & (place % 5 == 3)] = 0
    return x.requires_grad_()


def test_gradients_of_running_products_are_eagers() -> None:
    given = [_with_zeros((n, 9, i), torch.float32) for n, _, i in SHAPES.values()]
    given += [_with_zeros((5, 40, 17), torch.float64), torch.rand((), requires_grad=True)]
    given += [torch.rand(20, 33).requires_grad_()]

    def function(*given: Tensor) -> list[Tensor]:
        return [x.cumprod(min(1, x.dim() - 1)) for x in given]

    torch._dynamo.reset()
    grads = []
    for call in (function, torch.compile(function, backend="max", fullgraph=True)):
        results = call(*given)
        weights = [torch.linspace(-1, 1, r.numel()).view(r.shape).to(r.dtype) for r in results]
        grads.append(torch.autograd.grad(results, given, weights))
    torch.testing.assert_close(*grads)
