"""torchvision's means over boxes, beside its own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.ops import roi_align

from tests.engines.steps.plans import kinds, traced


def _boxes(count: int, images: int, size: int, dtype: torch.dtype) -> Tensor:
    """Boxes inside and outside of the images, one without any area, one the wrong way round."""
    chance = torch.Generator().manual_seed(0)
    ends = torch.rand(count, 2, 2, generator=chance) * 1.4 - 0.2
    ends = ends.sort(1).values.flatten(1) * size
    ends[0, 2:] = ends[0, :2]
    ends[1] = ends[1, [2, 3, 0, 1]]
    ends[2] = 5 * size
    which = torch.arange(count)[:, None] % images
    return torch.cat([which, ends], 1).to(dtype)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("samples", [-1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_torchvision(aligned: bool, samples: int, dtype: torch.dtype) -> None:
    x = torch.randn(3, 5, 20, 27, dtype=dtype, generator=torch.Generator().manual_seed(1))
    boxes = _boxes(40, 3, 60, dtype)

    def function(x: Tensor, boxes: Tensor) -> list[Tensor]:
        return [roi_align(x, boxes, (4, 3), 0.4, samples, aligned)]

    plan, executable = traced(function, [x, boxes])
    assert kinds(plan)["tmb_roi_align"] == 1
    (found,) = executable([x, boxes])
    (expected,) = function(x, boxes)
    assert expected.abs().max() > 0.5
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_no_boxes() -> None:
    x, boxes = torch.randn(1, 2, 8, 8), torch.zeros(0, 5)
    _, executable = traced(lambda x, boxes: [roi_align(x, boxes, 3)], [x, boxes])
    assert executable([x, boxes])[0].shape == (0, 2, 3, 3)


@pytest.mark.parametrize(("samples", "aligned"), [(2, False), (-1, True)])
def test_gradients_are_torchvisions(samples: int, aligned: bool) -> None:
    from torch_max_backend import max_backend

    x, boxes = torch.randn(2, 4, 16, 19), _boxes(9, 2, 40, torch.float32)

    def function(x: Tensor, boxes: Tensor) -> Tensor:
        return roi_align(x.sin(), boxes, (3, 2), 0.5, samples, aligned).cos()

    def results(function: object) -> list[Tensor]:
        given = x.clone().requires_grad_()
        result = function(given, boxes)
        result.square().sum().backward()
        return [result.detach(), given.grad]

    compiled = torch.compile(function, backend=max_backend, options={"fallback": "error"})
    for ours, theirs in zip(results(compiled), results(function), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_box_of_an_image_that_is_not_there() -> None:
    x, boxes = torch.randn(2, 2, 8, 8), torch.tensor([[2.0, 0, 0, 4, 4]])
    _, executable = traced(lambda x, boxes: [roi_align(x, boxes, 3)], [x, boxes])
    with pytest.raises(Exception, match=r"box 0 is of image 2(\.0)?; there are 2"):
        executable([x, boxes])
