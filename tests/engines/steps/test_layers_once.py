"""Equal layers are converted once; the plan is the one of a conversion of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.engines.steps.plans import same_as_eager, traced
from torch_max_backend.convert import converter
from torch_max_backend.engines.steps.plan_text import text_of

WIDTH = 16
_generator = torch.Generator().manual_seed(0)
X = torch.randn(3, 5, WIDTH, generator=_generator)
WEIGHTS = [torch.randn(WIDTH, WIDTH, generator=_generator) / 4 for _ in range(8)]
STEPS = [torch.tensor([float(k)] * WIDTH) for k in range(4)]
FLAGS = [torch.arange(WIDTH) % (k + 2) == 0 for k in range(4)]


def _layers(x: Tensor, *weights: Tensor) -> list[Tensor]:
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        h = torch.nn.functional.layer_norm(x, (WIDTH,))
        x = x + torch.tanh(h @ up).mul(0.5) @ down
    return [x]


def _each_returned(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """Values of each layer are results, too, one of them before the layer ends."""
    kept = []
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        h = torch.relu(x @ up)
        kept.append(h.transpose(0, 1))
        x = torch.tanh(h @ down).mul(2).add(x)
    return [x, *kept]


def _with_constants(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """A constant that differs by layer, one that all share, and a choice by a constant."""
    for k, (up, down) in enumerate(zip(weights[::2], weights[1::2], strict=True)):
        h = torch.where(FLAGS[k], x @ up + STEPS[k], x * STEPS[1])
        x = torch.sigmoid(h @ down).add(h).sub(0.5)
    return [x]


def _first_given_twice(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """The first layer takes one value in two places; the others take two values there."""
    before = x
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        h = torch.tanh(x @ up) + before
        before, x = x, torch.relu(h @ down).mul(0.25).add(before)
    return [x, before]


def _crossed(x: Tensor, *weights: Tensor) -> list[Tensor]:
    """Two streams that change places, and a view that passes through a layer."""
    y = x.flip(-1)
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        h = torch.relu(x @ up).mul(2).sub(0.1)
        x, y = y.reshape(3, 5, WIDTH), torch.tanh(h @ down).add(y)
    return [x, y]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "function", [_layers, _each_returned, _with_constants, _first_given_twice, _crossed]
)
def test_the_plan_is_that_of_converting_each_layer(
    function: Callable[..., list[Tensor]], dynamic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lowerings = []
    convert = converter._Builder.convert_node

    def counted(builder: object, node: torch.fx.Node) -> None:
        lowerings.append(node)
        convert(builder, node)

    monkeypatch.setattr(converter._Builder, "convert_node", counted)
    once, executable = traced(function, [X, *WEIGHTS], dynamic)
    few = len(lowerings)
    with monkeypatch.context() as patch:
        patch.setattr(converter, "find_regions", lambda *_: [])
        each, _ = traced(function, [X, *WEIGHTS], dynamic)
    assert few < 0.75 * (len(lowerings) - few)
    assert text_of(once) == text_of(each)
    expected = function(X, *WEIGHTS)
    torch.testing.assert_close(executable([X, *WEIGHTS]), expected, rtol=1e-5, atol=1e-5)


def test_random_numbers_differ_between_layers() -> None:
    def drawn(x: Tensor, *weights: Tensor) -> list[Tensor]:
        found = []
        for up in weights:
            noise = torch.rand_like(x)
            x = torch.tanh(x @ up).mul(0.5).add(0.1).relu().sub(noise)
            found.append(noise)
        return found

    _, executable = traced(drawn, [X, *WEIGHTS])
    noises = executable([X, *WEIGHTS])
    assert len({tuple(n.flatten()[:4].tolist()) for n in noises}) == len(WEIGHTS)


def test_results_of_layers_are_bit_for_bit_those_of_eager() -> None:
    def exact(x: Tensor, *weights: Tensor) -> list[Tensor]:
        for up, down in zip(weights[::2], weights[1::2], strict=True):
            x = (x.round() @ up.round()).relu().mul(0.5).floor() @ down.round()
            x = x.remainder(7).sub(3).abs()
        return [x]

    same_as_eager(exact, [X, *WEIGHTS])
