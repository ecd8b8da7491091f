"""Modules that run as fused kernels, and give back what they were."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from torch_max_backend import compiled, patch, unpatch
from torch_max_backend.errors import PatchError
from torch_max_backend.patching.blocks import is_block


class Feedforward(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 2 * width)
        self.narrow = nn.Linear(2 * width, width)
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = nn.functional.gelu(self.wide(self.norm(x)))
        return x + self.scale * self.narrow(inside)


class Stack(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Feedforward(width) for _ in range(3))
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture
def model() -> Stack:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    return Stack().eval()


X = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))


def attributes(model: nn.Module) -> list[dict[str, object]]:
    return [{**m.__dict__} for m in model.modules()]


@torch.no_grad()
@pytest.mark.parametrize("key", ["default", "class", "names", "function"])
def test_equal_blocks_are_one_compile_and_restored_exactly(model: Stack, key: str) -> None:
    keys = {"class": Feedforward, "names": "layers.*", "function": is_block}
    expected, before = model(X), attributes(model)
    names = list(model.state_dict())
    with patch(model, {keys[key]: compiled()} if key in keys else None) as done:
        assert done.names == ["layers.0", "layers.1", "layers.2"]
        torch.testing.assert_close(model(X), expected)
        assert list(model.state_dict()) == names
        assert counters["stats"]["unique_graphs"] == 1
    assert attributes(model) == before
    calls = counters["max_backend"]["graphs"]
    assert torch.equal(model(X), expected)
    assert counters["max_backend"]["graphs"] == calls


def test_gradients_reach_the_parameters(model: Stack) -> None:
    model.train()(X).square().sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    with patch(model):
        model(X).square().sum().backward()
    for parameter, grad in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


@torch.no_grad()
def test_what_changes_in_a_module_is_seen(model: Stack) -> None:
    patch(model)
    model(X)
    layer = model.layers[1]
    layer.scale = 3.0
    layer.wide.weight = nn.Parameter(layer.wide.weight * 2)
    layer.narrow.bias.add_(1)
    layer.norm = nn.Identity()
    got = model(X)
    unpatch(model)
    torch.testing.assert_close(got, model(X))


@torch.no_grad()
def test_hooks_run_wherever_they_are(model: Stack) -> None:
    patch(model)
    model(X)
    seen: list[str] = []
    hooks = [
        model.layers[0].register_forward_hook(lambda *_: seen.append("around")),
        model.layers[1].wide.register_forward_hook(lambda *_: seen.append("inside")),
        model.layers[2].narrow.register_forward_pre_hook(lambda *_: seen.append("before")),
    ]
    model(X)
    assert seen == ["around", "inside", "before"]
    for hook in hooks:
        hook.remove()
    handle = nn.modules.module.register_module_forward_hook(lambda m, *_: seen.append(str(m)))
    model(X)
    handle.remove()
    assert str(model.layers[1].wide) in seen


@torch.no_grad()
def test_copies_have_weights_of_their_own(model: Stack) -> None:
    expected = model(X)
    with patch(model):
        model(X)
        other = copy.deepcopy(model)
        other.layers[0].wide.weight.zero_()
        assert not torch.allclose(other(X), expected)
        torch.testing.assert_close(model(X), expected)
        loaded = pickle.loads(pickle.dumps(model))
        assert torch.equal(loaded(X), expected)
    with patch(loaded) as again:
        assert len(again.names) == 3
        torch.testing.assert_close(loaded(X), expected)


@torch.no_grad()
def test_a_kernel_of_ones_own(model: Stack) -> None:
    calls = []

    def norm(module: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return torch.zeros_like(x) + module.bias

    with patch(model, {nn.LayerNorm: norm}) as done:
        assert done.names == [f"layers.{i}.norm" for i in range(3)]
        ours = model(X)
        assert len(calls) == 3
        # torch.compile of the whole sees the kernel as well.
        whole = torch.compile(model, backend="aot_eager")(X)
        torch.testing.assert_close(whole, ours)
        # Inside what is compiled, too.
        with patch(model, {Feedforward: compiled()}):
            torch.testing.assert_close(model(X), ours)
    assert not torch.allclose(model(X), ours)


@torch.no_grad()
def test_a_compiled_model_around_patched_modules_is_one_graph(model: Stack) -> None:
    expected = model(X)
    with patch(model):
        compiled_model = torch.compile(model, backend="max", fullgraph=True)
        torch.testing.assert_close(compiled_model(X), expected)


def test_patches_are_undone_in_any_order(model: Stack) -> None:
    def one(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def two(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x + 2

    expected = model.head(X)
    first, second = patch(model, {"head": one}), patch(model, {"head": two})
    assert torch.equal(model.head(X), X + 2)
    first.restore()
    assert torch.equal(model.head(X), X + 2)
    second.restore()
    assert torch.equal(model.head(X), expected)
    unpatch(model)
    assert torch.equal(model.head(X), expected)


def test_patches_that_were_undone_are_forgotten(model: Stack) -> None:
    before = attributes(model)
    for _ in range(5):
        with patch(model) as done:
            assert done.in_force
        assert not done.in_force
    assert attributes(model) == before


def test_a_model_that_was_patched_whole_is_freed(model: Stack) -> None:
    other = copy.deepcopy(model)
    patch(other, {"": compiled()})
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None


def test_what_cannot_be_patched_is_said(model: Stack) -> None:
    before = attributes(model)
    with pytest.raises(PatchError, match=r"Nothing in the model fits 'layer\.\*'.*Feedforward"):
        patch(model, {Feedforward: compiled(), "layer.*": compiled()})
    assert attributes(model) == before
    model.layers[1].forward = lambda x: x
    with pytest.raises(PatchError, match="a forward of its own"):
        patch(model, {Feedforward: compiled()})
    assert "forward" not in model.layers[0].__dict__
