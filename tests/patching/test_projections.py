"""Linear layers of one argument as one product."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from torch_max_backend import PatchError, packed, patch


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 4, bias=False)
        self.v = nn.Linear(8, 4)
        self.wide = nn.Linear(4, 8)

    def forward(self, x: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
        memory = x if memory is None else memory
        return torch.cat([self.q(x), self.k(memory), self.v(memory)], -1)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Attention(), nn.Linear(16, 8), Attention()).eval()


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
PACKED = {Attention: packed("q", "k", "v")}


@torch.no_grad()
def test_one_product_for_three_layers(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model(X)
    products = []
    linear = nn.functional.linear
    monkeypatch.setattr(
        nn.functional, "linear", lambda x, w, b=None: products.append(w.shape) or linear(x, w, b)
    )
    with patch(model, PACKED):
        torch.testing.assert_close(model(X), expected)
        assert products == [(16, 8), (8, 16), (16, 8)]
    assert torch.equal(model(X), expected)


@torch.no_grad()
def test_other_arguments_and_written_weights(model: nn.Module) -> None:
    attention = model[0]
    other = torch.randn_like(X)
    expected = attention(X, other)
    with patch(model, PACKED):
        torch.testing.assert_close(attention(X, other), expected)
        first = attention(X)
        X_again = X.clone()
        assert torch.equal(attention(X_again), first)
        X_again.mul_(2)
        torch.testing.assert_close(attention(X_again)[..., 8:12], 2 * first[..., 8:12])
        attention.k.weight.mul_(3)
        torch.testing.assert_close(attention(X)[..., 8:12], 3 * first[..., 8:12])
        copied = copy.deepcopy(attention)
        copied.v.weight.zero_()
        copied.v.bias.zero_()
        assert not copied(X)[..., 12:].any()
        assert attention(X)[..., 12:].any()


def test_gradients_are_those_of_the_layers(model: nn.Module) -> None:
    model(X).sum().backward()
    expected = model[0].k.weight.grad
    model.zero_grad()
    with patch(model, PACKED):
        model(X).sum().backward()
    assert torch.equal(model[0].k.weight.grad, expected)


@pytest.mark.parametrize("names", [(), ("q",), ("q", "key"), ("q", "wide")])
def test_layers_that_take_something_else(model: nn.Module, names: tuple[str, ...]) -> None:
    with pytest.raises(PatchError, match=r"two or more nn\.Linear layers that take the same"):
        patch(model, {Attention: packed(*names)})
