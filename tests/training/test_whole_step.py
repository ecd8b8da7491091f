"""A training step as one compiled function, which Dynamo breaks up, and a compiled optimizer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.optim import lr_scheduler

from tests.training.like_eager import Compile, gradients, like_eager, state

pytestmark = pytest.mark.xdist_group("training state")


def _steps(
    compile: Compile, optimizer: Callable[..., optim.Optimizer], clip: float | None = None
) -> Any:
    """Losses, norms of gradients, parameters and the optimizer's state of a few steps."""
    net, seen = nn.Linear(4, 3), []
    chosen = optimizer(net.parameters())

    def step(x: Tensor) -> Tensor:
        loss = net(x).square().mean()
        loss.backward()
        if clip is not None:
            seen.append(nn.utils.clip_grad_norm_(net.parameters(), clip))
        chosen.step()
        chosen.zero_grad()
        return loss

    compiled = compile(step)
    for _ in range(4):
        seen.append(compiled(torch.randn(6, 4)).detach())
        assert net.weight.grad is None
        seen.append(state(net))
    return seen, [dict(s) for s in chosen.state.values()]


@like_eager()
def test_sgd_within_the_step(compile: Compile) -> Any:
    return _steps(compile, partial(optim.SGD, lr=0.1, momentum=0.9))


@like_eager()
def test_adamw_within_the_step(compile: Compile) -> Any:
    return _steps(compile, partial(optim.AdamW, lr=0.1))


@like_eager()
def test_gradients_are_clipped_within_the_step(compile: Compile) -> Any:
    return _steps(compile, partial(optim.SGD, lr=0.1, momentum=0.9), clip=0.5)


def _scheduled(compile: Compile, optimizer: optim.Optimizer, net: nn.Module, gamma: float) -> Any:
    scheduler, seen = lr_scheduler.StepLR(optimizer, step_size=2, gamma=gamma), []
    step = compile(optimizer.step)
    for _ in range(4):
        optimizer.zero_grad()
        net(torch.randn(6, 4)).square().mean().backward()
        seen.append(gradients(net))
        step()
        scheduler.step()
        seen.append(state(net))
        seen.append([float(optimizer.param_groups[0]["lr"])])
    return seen, [dict(s) for s in optimizer.state.values()]


@like_eager()
def test_a_scheduled_rate_reaches_a_compiled_optimizer(compile: Compile) -> Any:
    net = nn.Linear(4, 3)
    return _scheduled(compile, optim.SGD(net.parameters(), lr=0.1, momentum=0.9), net, 0.5)


@like_eager(graphs=1)
def test_a_rate_in_a_tensor_needs_no_other_compile(compile: Compile) -> Any:
    net = nn.Linear(4, 3)
    return _scheduled(compile, optim.SGD(net.parameters(), lr=torch.tensor(0.1)), net, 0.5)
