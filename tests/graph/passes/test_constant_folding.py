"""What does not depend on the arguments is computed ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tracing import traced
from torch_max_backend.graph.passes.constant_folding import fold_constants


def _operators(module: torch.fx.GraphModule) -> list[str]:
    return [n.target.__name__ for n in module.graph.nodes if n.op == "call_function"]


def _stored(module: torch.fx.GraphModule) -> list[Tensor]:
    nodes = [n for n in module.graph.nodes if n.op == "get_attr"]
    return [getattr(module, n.target) for n in nodes]


@pytest.mark.parametrize(
    ("function", "left"),
    [
        pytest.param(
            lambda x: x + torch.arange(3).add(1).mul(2).to(x.dtype), ["add.Tensor"], id="range"
        ),
        pytest.param(
            lambda x: x * (torch.ones(3, 3).tril().sum(0) + torch.zeros(3)),
            ["mul.Tensor"],
            id="through uniform tensors",
        ),
        pytest.param(
            lambda x: x + torch.zeros(3), ["full.default", "add.Tensor"], id="uniform stays"
        ),
        pytest.param(
            lambda x: (x + 1, torch.arange(3)),
            ["add.Tensor", "arange.start_step"],
            id="result stays",
        ),
    ],
)
def test_folds(function: Callable[..., Any], left: list[str]) -> None:
    x = torch.randn(2, 3)
    module = traced(function, x)
    fold_constants(module)
    module.graph.lint()
    module.recompile()
    assert _operators(module) == left
    want = function(x)
    want = list(want) if isinstance(want, tuple) else [want]
    for ours, theirs in zip(module(x), want, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_random_numbers_are_never_folded() -> None:
    module = traced(lambda x: x + torch.ops.aten.rand.default([3]).mul(2), torch.randn(2, 3))
    fold_constants(module)
    assert "rand.default" in _operators(module)
    assert not _stored(module)


def test_what_depends_on_a_symbolic_size_stays() -> None:
    module = traced(
        lambda x: x + torch.arange(x.shape[0]).unsqueeze(1), torch.randn(5, 3), dynamic=True
    )
    fold_constants(module)
    assert not _stored(module)
    assert "arange.start_step" in _operators(module)


def test_a_large_tensor_is_not_computed_ahead() -> None:
    module = traced(lambda x: x + torch.arange(2_000_000).mul(2)[:3].to(x.dtype), torch.randn(2, 3))
    fold_constants(module)
    assert not _stored(module)
