"""Cross products and affine grids as formulas of coordinates."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.beside_eager import assert_as_eager


def _x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(
    ("a", "b", "dim"),
    [
        (_x(50, 3), _x(50, 3), -1),
        (_x(3, 40), _x(3, 40), 0),
        (_x(7, 1, 3), _x(1, 9, 3), 2),
        (_x(70, 3).bfloat16(), _x(70, 3).bfloat16(), 1),
        ((_x(60, 3) * 99).to(torch.int8), (_x(60, 3) * 99).to(torch.int8), 1),
        (_x(0, 3), _x(0, 3), 1),
    ],
)
def test_cross_products(a: Tensor, b: Tensor, dim: int) -> None:
    assert_as_eager(lambda a, b: torch.linalg.cross(a, b, dim=dim), a, b.flip(dim))


def test_a_cross_product_of_other_lengths_is_torchs_error() -> None:
    def function(a: Tensor, b: Tensor) -> Tensor:
        return torch.linalg.cross(a, b)

    with pytest.raises(Exception, match="must have length 3"):
        assert_as_eager(function, _x(5, 4), _x(5, 4))


@pytest.mark.filterwarnings("ignore:Since version 1.3.0, affine_grid")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("sizes", [(3, 2, 5, 40), (1, 1, 1, 17), (2, 4, 3, 5, 9), (2, 1, 1, 1, 1)])
def test_affine_grids(sizes: tuple[int, ...], align_corners: bool) -> None:
    rank = len(sizes) - 2
    theta = _x(sizes[0], rank, rank + 1)
    assert_as_eager(lambda t: F.affine_grid(t, list(sizes), align_corners), theta)
    grid = F.affine_grid(theta.double(), list(sizes), align_corners)
    torch._dynamo.reset()
    half = torch.compile(F.affine_grid, backend="max")(theta.bfloat16(), list(sizes), align_corners)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), grid, rtol=0.02, atol=0.02)
