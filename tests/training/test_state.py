"""Parameters, gradients and buffers over several training steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.training.like_eager import (
    Compile,
    Net,
    batches,
    compiled_only,
    gradients,
    like_eager,
    sgd,
    state,
)

pytestmark = pytest.mark.xdist_group("training state")


@like_eager(graphs=2)
def test_batch_norm_averages_in_train_and_keeps_in_eval(compile: Compile) -> Any:
    net, seen = Net(), []
    compiled = compile(net)
    for x in batches():
        net.train()
        compiled(x).square().sum().backward()
        seen.append(state(net))
        net.eval()
        with torch.no_grad():
            seen.append([compiled(x)])
        seen.append(state(net))
    assert net.norm.num_batches_tracked.item() == 3
    return seen, gradients(net)


@like_eager(graphs=3)
def test_steps_between_no_grad_and_inference_mode(compile: Compile) -> Any:
    net, seen = Net(), []
    compiled, optimizer = compile(net), sgd(net)
    for x in batches(4):
        for mode in (torch.no_grad, torch.inference_mode):
            net.eval()
            with mode():
                result = compiled(x)
            assert not result.requires_grad
            assert result.is_inference() == (mode is torch.inference_mode)
            seen.append(result.clone())
        net.train()
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        optimizer.step()
    return seen, state(net)


@like_eager(graphs=1)
def test_gradients_accumulate_until_they_are_zeroed(compile: Compile) -> Any:
    net, seen = Net(), []
    compiled, optimizer = compile(net), sgd(net)
    for set_to_none in (True, False, False, True):
        for x in batches():
            compiled(x).square().mean().backward()
            seen.append(gradients(net))
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
        kept = gradients(net)
        assert all(not g.any() for g in kept)
        assert len(kept) == (0 if set_to_none else 6)
        seen.append(state(net))
    return seen


@like_eager(graphs=1)
def test_backward_twice_through_one_forward(compile: Compile) -> Any:
    net, (x, y, z) = Net(), batches()
    compiled = compile(net)
    loss = compiled(x).square().sum()
    loss.backward(retain_graph=True)
    once = gradients(net)
    # Nothing that runs in between changes what forward saved.
    other = compiled(y).exp().sum()
    compiled(z)
    loss.backward()
    torch.testing.assert_close(gradients(net), [2 * g for g in once])
    other.backward()
    return once, gradients(net)


@like_eager(graphs=1)
def test_hooks_of_results_and_parameters_run(compile: Compile) -> Any:
    net, seen = Net(), []
    compiled = compile(net)
    net.first.weight.register_hook(lambda g: g * 3)

    @torch.no_grad()
    def descend(p: Tensor) -> None:
        seen.append(p.grad.clone())
        p.sub_(p.grad, alpha=0.1)
        p.grad = None

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(descend)
    for x in batches():
        result = compiled(x)
        result.register_hook(lambda g: g + 1)
        result.square().sum().backward()
    assert len(seen) == 3 * 6
    return sorted(seen, key=lambda g: (g.shape, g.sum().item())), state(net)


@like_eager()
def test_hooks_inside_run(compile: Compile) -> Any:
    net, seen = Net(), []
    net.last.register_full_backward_hook(lambda module, given, got: seen.extend([*given, *got]))

    def function(x: Tensor) -> Tensor:
        hidden = torch.tanh(net.first(x))
        hidden.register_hook(lambda g: g * 2)
        return net.last(hidden)

    compiled = compile(function)
    for x in batches():
        compiled(x).square().sum().backward()
    assert len(seen) == 2 * 3
    return [g.clone() for g in seen], gradients(net)


@like_eager(graphs=1)
def test_inputs_get_gradients(compile: Compile) -> Any:
    net, seen = Net().eval(), []
    net.norm.running_mean.uniform_()
    compiled = compile(net)
    for x in batches():
        x.requires_grad_()
        compiled(x).square().sum().backward()
        seen.append(x.grad)
        seen.extend(torch.autograd.grad(compiled(x).sum(), [x, net.first.weight]))
    return seen, gradients(net), state(net)


@like_eager(graphs=1)
def test_changed_parameters_are_seen_without_another_compile(compile: Compile) -> Any:
    net, x, seen = Net(), batches(1)[0], []
    compiled, optimizer = compile(net), sgd(net)
    first, other = state(net), Net().state_dict()

    def step() -> None:
        optimizer.zero_grad()
        result = compiled(x)
        result.square().sum().backward()
        seen.append([result.detach(), *gradients(net)])

    step()
    optimizer.step()
    step()
    net.load_state_dict(other)
    step()
    with torch.no_grad():
        net.norm.weight.mul_(2)
    step()
    net.last.weight.data = first[-2]
    step()
    net.load_state_dict({name: value.clone() for name, value in other.items()}, assign=True)
    step()
    assert not any(torch.equal(a[0], b[0]) for a, b in pairwise(seen))
    return seen, state(net)


@like_eager(graphs=2)
def test_layers_freeze_and_unfreeze(compile: Compile) -> Any:
    net, seen = Net(), []
    compiled, optimizer = compile(net), sgd(net)
    for x, frozen in zip(batches(4), (True, False, True, False), strict=True):
        for layer in (net.first, net.norm):
            layer.requires_grad_(not frozen)
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        assert (net.first.weight.grad is None) == frozen
        assert net.last.weight.grad is not None
        seen.append(gradients(net))
        optimizer.step()
    return seen, state(net)


@like_eager(graphs=1)
def test_tied_weights_stay_one(compile: Compile) -> Any:
    net = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5))
    net[2].weight = net[0].weight
    assert len(list(net.parameters())) == 3
    compiled, optimizer, seen = compile(net), sgd(net), []
    for x in [torch.randn(6, 5) for _ in range(3)]:
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        seen.append(gradients(net))
        optimizer.step()
    return seen, state(net)


@like_eager(graphs=1)
def test_checkpointed_layers_learn(compile: Compile) -> Any:
    net, seen = Net(), []

    def function(x: Tensor) -> Tensor:
        def layers(x: Tensor) -> Tensor:
            return torch.sigmoid(net.first(torch.tanh(x)))

        return net.last(checkpoint(layers, x, use_reentrant=False))

    compiled, optimizer = compile(function), sgd(net)
    for x in batches():
        optimizer.zero_grad()
        compiled(x).square().mean().backward()
        seen.append(gradients(net))
        optimizer.step()
    return seen, state(net)


@compiled_only
def test_a_second_derivative_is_refused_by_name(compile: Compile) -> None:
    net = Net()
    loss = compile(net)(batches(1)[0]).square().sum()
    firsts = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        sum(g.square().sum() for g in firsts).backward()
