"""What is cheaper to compute again than to keep is not kept."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import kinds, same_as_eager
from torch_max_backend.engines.steps.planner.plan import Plan


def _whole(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small whole numbers: each order of additions gives the same bits."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def _largest_kept(plan: Plan) -> int:
    """Elements of the largest temporary of known size."""
    sizes = [m.size for m in plan.memory if m.kind == "temporary"]
    return max((n for n in sizes if isinstance(n, int)), default=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6, 300), (6, 20)])
def test_products_that_are_summed_are_not_kept(dtype: torch.dtype, shape: tuple[int, int]) -> None:
    def gradient(g: Tensor, y: Tensor) -> list[Tensor]:
        products = g.float() * y.float()
        return [(products - y.float() * products.sum(-1, keepdim=True)).to(g.dtype)]

    plan = same_as_eager(gradient, [_whole(*shape, dtype=dtype), _whole(*shape, dtype=dtype)])
    assert _largest_kept(plan) == shape[0]


def test_sizes_may_be_unknown() -> None:
    def gradient(g: Tensor, y: Tensor) -> list[Tensor]:
        products = g * y
        return [products - y * products.sum(-1, keepdim=True)]

    plan = same_as_eager(gradient, [_whole(6, 300), _whole(6, 300)], dynamic=True)
    assert kinds(plan)["mul mul sub"] == 1


def test_two_passes_may_compute_the_same_again() -> None:
    def normalized(x: Tensor) -> list[Tensor]:
        wide = x.float() * 2
        centered = wide - wide.sum(-1, keepdim=True)
        return [wide * centered.square().sum(-1, keepdim=True)]

    plan = same_as_eager(normalized, [_whole(5, 256, dtype=torch.bfloat16)])
    assert _largest_kept(plan) == 5


def test_what_takes_long_is_kept() -> None:
    plan = same_as_eager(
        lambda x: [(y := x.sqrt()) * y.sum(-1, keepdim=True)], [_whole(6, 300).square()]
    )
    assert _largest_kept(plan) == 6 * 300


def test_what_takes_more_to_read_is_kept() -> None:
    def function(a: Tensor, b: Tensor, c: Tensor) -> list[Tensor]:
        made = a * b + c
        return [made * made.sum(-1, keepdim=True)]

    plan = same_as_eager(function, [_whole(6, 300), _whole(6, 300), _whole(6, 300)])
    assert _largest_kept(plan) == 6 * 300


def test_results_are_kept() -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        made = x * y
        return [made, made - made.sum(-1, keepdim=True)]

    assert kinds(same_as_eager(function, [_whole(6, 300), _whole(6, 300)]))["sub"] == 1


def test_what_is_written_meanwhile_is_not_read_again() -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        made = x * y
        total = made.sum(-1, keepdim=True)
        x.copy_(total.expand_as(x))
        return [made - total]

    same_as_eager(function, [_whole(6, 300), _whole(6, 300)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_read_in_another_order_too_is_kept(dtype: torch.dtype) -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        wide = y.float() + 1
        made = x.float() * wide
        return [(made - made.sum(-1, keepdim=True)) * wide.t()]

    same_as_eager(function, [_whole(260, 260, dtype=dtype), _whole(260, 260, dtype=dtype)])


def test_another_order_of_dims_keeps() -> None:
    def function(x: Tensor, y: Tensor) -> list[Tensor]:
        made = x * y
        return [made.t().reshape(-1, 6) * made.sum(-1).sum()]

    same_as_eager(function, [_whole(6, 300), _whole(6, 300)])
