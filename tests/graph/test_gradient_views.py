"""Gradients that are views of what a backward pass is given, as eager PyTorch returns them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torch_max_backend import max_backend

X, Y = torch.randn(6, 8), torch.randn(6, 8)


def _shared(function: Callable[..., Tensor], *arguments: Tensor) -> list[bool]:
    """Which gradients are memory of the one that is given; all calls are checked, the last ones are
    answered by code that is written out."""
    options = {"engine": "steps", "fallback": "error", "cache": False, "min_ops": 1}
    compiled = torch.compile(function, backend=max_backend, options=options)
    given = [a.clone().requires_grad_() for a in arguments]
    for call in range(12):
        result = compiled(*given)
        gradient = torch.randn_like(result)
        if call % 2 == 0 and result.dim() > 1:
            gradient = gradient.mT.contiguous().mT
        found = torch.autograd.grad(result, given, gradient)
        expected = torch.autograd.grad(function(*given), given, gradient)
        torch.testing.assert_close(found, expected)
    memory = gradient.untyped_storage().data_ptr()
    return [g.untyped_storage().data_ptr() == memory for g in found]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda x, y: torch.stack([x, y]), (X, Y)),
        (lambda x, y: torch.cat([x, y]), (X, Y)),
        (lambda x: x.sum(1), (X,)),
        (lambda x: x[None].permute(2, 0, 1), (X,)),
    ],
    ids=["stack", "cat", "sum", "permute"],
)
def test_parts_of_the_gradient_are_not_copied(
    function: Callable[..., Tensor], arguments: tuple[Tensor, ...]
) -> None:
    assert all(_shared(function, *arguments))


def test_what_overlaps_is_copied() -> None:
    """Whoever adds to one gradient must not change another."""
    assert _shared(lambda x, y: x.t() + y.view(8, 6), X, Y) == [True, False]
    assert _shared(lambda x, y: x + y.view(8, 6).view(6, 8), X, Y) == [True, False]


def test_parts_that_are_not_dense_are_copied() -> None:
    """A parameter's gradient is as dense as the parameter."""
    assert _shared(lambda x, y: torch.cat([x, y], 1), X, Y) == [False, False]


def test_gradients_add_up() -> None:
    options = {"engine": "steps", "fallback": "error", "cache": False, "min_ops": 1}
    compiled = torch.compile(lambda x, y: torch.stack([x, y]), backend=max_backend, options=options)
    x, y = X.clone().requires_grad_(), Y.clone().requires_grad_()
    one, two = torch.randn(2, 6, 8), torch.randn(2, 6, 8)
    compiled(x, y).backward(one.clone())
    compiled(x, y).backward(two.clone())
    assert x.grad is not None
    assert y.grad is not None
    torch.testing.assert_close(torch.stack([x.grad, y.grad]), one + two)


def test_sizes_that_vary() -> None:
    options = {"engine": "steps", "fallback": "error", "cache": False, "min_ops": 1}
    compiled = torch.compile(
        lambda x, y: torch.stack([x.t(), y]), backend=max_backend, options=options, dynamic=True
    )
    for rows in (6, 9, 6):
        x, y = (torch.randn(n, requires_grad=True) for n in ((rows, 8), (8, rows)))
        gradient = torch.randn(2, 8, rows)
        found = torch.autograd.grad(compiled(x, y), (x, y), gradient)
        torch.testing.assert_close(found, (gradient[0].t(), gradient[1]))
