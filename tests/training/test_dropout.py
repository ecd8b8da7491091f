"""Dropout: one mask for forward and backward, decided by torch's seed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.training.like_eager import Compile, compiled_only

pytestmark = pytest.mark.xdist_group("training state")

P = 0.3
SHAPE = (64, 65)


class Twice(nn.Module):
    """The same input dropped out twice."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(P)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.drop(x), self.drop(x)


def _hidden(x: Tensor) -> Tensor:
    return F.dropout(torch.sin(x), P).exp()


def _ones() -> Tensor:
    return torch.ones(SHAPE, requires_grad=True)


@compiled_only
def test_the_mask_of_backward_is_that_of_forward(compile: Compile) -> None:
    compiled = compile(Twice())
    for _ in range(3):
        x = torch.randn(SHAPE).requires_grad_()
        first, second = compiled(x)
        (first + 10 * second).sum().backward()
        masks = [(dropped != 0).float() / (1 - P) for dropped in (first, second)]
        torch.testing.assert_close(first, x * masks[0])
        torch.testing.assert_close(second, x * masks[1])
        torch.testing.assert_close(x.grad, masks[0] + 10 * masks[1])


@compiled_only
def test_seeds_decide_the_mask(compile: Compile) -> None:
    compiled = compile(Twice())

    def run(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        masks = []
        for _ in range(3):
            x = _ones()
            dropped = compiled(x)
            (dropped[0] + 10 * dropped[1]).sum().backward()
            masks += [dropped[0].detach(), dropped[1].detach(), x.grad]
        return masks

    first, again, other = run(1), run(1), run(2)
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    # Neither do two calls share a mask, nor two dropouts of a call.
    masks = [m for i, m in enumerate(first) if i % 3 != 2]
    assert not any(torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])


@compiled_only
def test_as_many_are_zero_as_asked(compile: Compile) -> None:
    compiled, zeros, count = compile(Twice()), 0, 0
    both = 0
    for _ in range(4):
        first, second = compiled(_ones())
        zeros += sum((t == 0).sum().item() for t in (first, second))
        both += ((first == 0) & (second == 0)).sum().item()
        count += first.numel()
    for found, tries, share in ((zeros, 2 * count, P), (both, count, P * P)):
        assert abs(found - tries * share) < 4 * (tries * share * (1 - share)) ** 0.5


@compiled_only
def test_eval_drops_nothing(compile: Compile) -> None:
    net = Twice()
    compiled = compile(net)
    x = torch.randn(SHAPE).requires_grad_()
    assert not torch.equal(compiled(x)[0], x)
    net.eval()
    for result in compiled(x):
        torch.testing.assert_close(result, x, rtol=0, atol=0)
    net.train()
    assert not torch.equal(compiled(x)[0], x)


def _learned(function: Any) -> None:
    """The gradient of ``_hidden`` is that of the result which was returned."""
    for _ in range(3):
        x = torch.rand(SHAPE).add(0.1).requires_grad_()
        result = function(x)
        result.sum().backward()
        mask = (result != 1).float() / (1 - P)
        assert 0 < (result == 1).sum() < result.numel()
        torch.testing.assert_close(x.grad, result.detach() * mask * x.detach().cos())


@compiled_only
def test_a_checkpointed_dropout_is_not_drawn_again(compile: Compile) -> None:
    _learned(compile(lambda x: checkpoint(_hidden, x, use_reentrant=False)))


@compiled_only
def test_a_small_budget_of_memory_keeps_the_mask(compile: Compile) -> None:
    _learned(compile(_hidden, options={"activation_memory_budget": 0.0}))
