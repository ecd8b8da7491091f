"""Training with fewer bits: autocast, scaled losses, bfloat16 weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.training.like_eager import Compile, Net, batches, gradients, like_eager, sgd, state

pytestmark = pytest.mark.xdist_group("training state")

# Eight bits of mantissa; errors of a few roundings.
BFLOAT16 = 2e-2


def autocast() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


@like_eager(graphs=1, tolerance=BFLOAT16)
def test_autocast_trains_in_bfloat16_and_keeps_float32(compile: Compile) -> Any:
    net, seen = Net(), []
    compiled, optimizer = compile(net), sgd(net)
    for x in batches(4):
        optimizer.zero_grad()
        with autocast():
            result = compiled(x)
        assert result.dtype == torch.bfloat16
        loss = result.float().square().mean()
        loss.backward()
        seen.append([loss.detach(), *gradients(net)])
        optimizer.step()
    assert {p.dtype for p in net.parameters()} == {torch.float32}
    return seen, state(net)


@like_eager(graphs=1, tolerance=BFLOAT16)
def test_a_scaler_skips_steps_that_overflow(compile: Compile) -> Any:
    net, seen = Net(), []
    compiled, optimizer = compile(net), sgd(net)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    for x, factor in zip(batches(5), (1.0, 1.0, torch.inf, 1.0, 1.0), strict=True):
        optimizer.zero_grad()
        with autocast():
            loss = compiled(x).float().square().mean() * factor
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        before = [p.detach().clone() for p in net.parameters()]
        if factor == 1:
            seen.append(gradients(net))
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        kept = [torch.equal(p, b) for p, b in zip(net.parameters(), before, strict=True)]
        assert all(kept) if factor != 1 else not any(kept)
        seen.append([torch.tensor(scaler.get_scale())])
    assert [s[0].item() for s in seen if len(s) == 1] == [1024, 2048, 1024, 1024, 2048]
    return seen, state(net)


@like_eager(graphs=1, tolerance=BFLOAT16)
def test_bfloat16_weights_learn(compile: Compile) -> Any:
    net, seen = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).bfloat16(), []
    compiled, optimizer = compile(net), sgd(net)
    for x in batches(3):
        optimizer.zero_grad()
        loss = compiled(x.bfloat16()).square().mean()
        loss.backward()
        seen.append([loss.detach(), *gradients(net)])
        optimizer.step()
    return seen, state(net)
