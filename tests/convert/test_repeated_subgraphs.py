"""Layers that are compiled once and called often, against eager PyTorch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

WIDTH = 24
_random = torch.Generator().manual_seed(0)


def _tensor(*shape: int) -> Tensor:
    return torch.randn(shape, generator=_random) / 8


X = _tensor(2, 7, WIDTH)
UPS, DOWNS = [_tensor(WIDTH, 40) for _ in range(4)], [_tensor(40, WIDTH) for _ in range(4)]
BIASES = [_tensor(40) for _ in range(4)]
KERNELS = [_tensor(3, 3, 3, 3) for _ in range(3)]
MASK = torch.zeros(7, 7).masked_fill(torch.ones(7, 7, dtype=torch.bool).triu(1), -torch.inf)


def _mlp(x: Tensor, *weights: Tensor) -> Tensor:
    for up, down, bias in zip(weights[:4], weights[4:8], weights[8:], strict=True):
        h = F.layer_norm(x, (WIDTH,))
        x = x + F.gelu(h @ up + bias) @ down
    return x


def _kept(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Values of each layer are results, too."""
    inner = []
    for up, down in zip(weights[:4], weights[4:8], strict=True):
        h = torch.relu(x @ up)
        inner.append(h)
        x = torch.tanh(h @ down).mul(2).add(x)
    return x, *inner


def _attended(x: Tensor, mask: Tensor, *weights: Tensor) -> Tensor:
    for up, down in zip(weights[:4], weights[4:8], strict=True):
        q = x.view(*x.shape[:2], 3, 8).transpose(1, 2)
        x = x + F.scaled_dot_product_attention(q, q, q, mask).transpose(1, 2).reshape(x.shape)
        x = x + torch.relu(x @ up) @ down
    return x


def _blocks(x: Tensor, *kernels: Tensor) -> Tensor:
    for kernel in kernels:
        h = torch.relu(F.conv2d(x, kernel, padding=1))
        x = torch.sigmoid(h * 2 + x) * torch.cos(h)
    return x


def _twice(x: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    """The first layer is given one value in two places, where the others are given two."""
    before = x
    for up, down in zip(weights[:4], weights[4:8], strict=True):
        h = torch.relu(x @ up) + before.sum(-1, keepdim=True)
        before, x = x, torch.tanh(h @ down) - before
    return x, before


def _around(q: Tensor, k: Tensor) -> tuple[Tensor, ...]:
    """What is given to a call is used after it, too."""
    weights = torch.exp(q @ k.mT)
    scaled = weights * 0.35
    return scaled.mT @ q, weights.mT @ q, (scaled * 2).cos(), scaled.sum(-1), scaled @ k


CASES: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "mlp": (_mlp, [X, *UPS, *DOWNS, *BIASES]),
    "kept": (_kept, [X, *UPS, *DOWNS]),
    "attended": (_attended, [X, MASK, *UPS, *DOWNS]),
    "blocks": (_blocks, [_tensor(2, 3, 9, 10), *KERNELS]),
    "around": (_around, [_tensor(2, 4, 5, 8), _tensor(2, 4, 6, 8)]),
    "twice": (_twice, [X, *UPS, *DOWNS]),
    "double": (_mlp, [v.double() for v in (X, *UPS, *DOWNS, *BIASES)]),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("repeated_layers", weight=4)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    _programs()[name].assert_agrees()


@cache
def _text(name: str) -> str:
    """The MAX graph of a case."""
    from tests.conformance.program import Program, trace_program
    from torch_max_backend.engines.max.module import build_module

    return str(build_module([trace_program(Program(name, *CASES[name]))])[0].mlir_module)


@compile_group("repeated_layers")
@pytest.mark.parametrize("name", CASES)
def test_layers_are_built_once(name: str) -> None:
    calls = Counter(re.findall(r"mo\.call @(\w+)", _text(name)))
    assert max(calls.values()) == {"blocks": 3, "around": 2, "twice": 3}.get(name, 4)
    assert _text(name).count("mo.graph @") == 1 + len(calls)


@compile_group("repeated_layers")
@pytest.mark.parametrize("name", CASES)
def test_a_graph_that_calls_computes_nothing_itself(name: str) -> None:
    """What it computed would not be waited for."""
    outer = _text(name).split("isSubgraph")[0]
    done = set(re.findall(r" = ((?:r?mo|mosh)\.[\w.]+)", outer))
    assert done <= {"mo.call", "mo.chain.create", "mo.constant"}
