"""Optimizers whose step is compiled: parameters and state change in place as in eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from tests.precompiled import Case, Precompiled

pytestmark = pytest.mark.xdist_group("optimizers")


class Lion(optim.Optimizer):
    """A user's own: moves by the sign of a mean of gradients."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 1e-2})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.add_(torch.sign(mean * 0.9 + p.grad * 0.1), alpha=-group["lr"])
                mean.mul_(0.99).add_(p.grad, alpha=0.01)


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "sgd": partial(optim.SGD, lr=1e-2, weight_decay=0.1),
    "momentum": partial(optim.SGD, lr=1e-2, momentum=0.9, nesterov=True),
    "adam": partial(optim.Adam, lr=1e-2),
    "adamw": partial(optim.AdamW, lr=1e-2, amsgrad=True),
    "adamw one by one": partial(optim.AdamW, lr=1e-2, foreach=False),
    "adagrad": partial(optim.Adagrad, lr=1e-2),
    "adadelta": optim.Adadelta,
    "adamax": partial(optim.Adamax, lr=1e-2),
    "nadam": partial(optim.NAdam, lr=1e-2),
    "radam": partial(optim.RAdam, lr=1e-2),
    "asgd": partial(optim.ASGD, lr=1e-2),
    "rprop": optim.Rprop,
    "lists of tensors": partial(optim.SGD, lr=1e-2, momentum=0.9, foreach=True),
    "rmsprop": partial(optim.RMSprop, lr=1e-2, centered=True, momentum=0.5),
    "lion": Lion,
}
STEPS = 3


def _started(name: str) -> tuple[list[Tensor], optim.Optimizer]:
    """Parameters with gradients, and their optimizer."""
    chance = torch.Generator().manual_seed(0)
    params = [nn.Parameter(torch.randn(shape, generator=chance)) for shape in ((4, 3), ())]
    for p in params:
        p.grad = torch.randn(p.shape, generator=chance)
    return list(params), OPTIMIZERS[name](params)


CASES = {
    name: Case(
        # The bound method keeps the optimizer, and that the parameters.
        lambda name=name: _started(name)[1].step,
        lambda: [()] * STEPS,
        fullgraph=False,
    )
    for name in OPTIMIZERS
}


@pytest.fixture(scope="module")
def programs() -> Iterator[Precompiled]:
    with Precompiled(CASES).serving() as programs:
        yield programs


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_eagers(programs: Precompiled, name: str) -> None:
    (ours, optimizer), (theirs, eager) = _started(name), _started(name)
    places = [p.data_ptr() for p in ours]
    step = programs.compile(optimizer.step, fullgraph=False)
    programs.loaded = 0
    for _ in range(STEPS):
        step()
        eager.step()
        torch.testing.assert_close(ours, theirs)
    assert programs.loaded > 0
    assert [p.data_ptr() for p in ours] == places
    states = zip(optimizer.state.values(), eager.state.values(), strict=True)
    for mine, expected in states:
        torch.testing.assert_close(dict(mine), dict(expected))
