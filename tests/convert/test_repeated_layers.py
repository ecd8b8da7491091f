"""Layers that are compiled once and called often, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.together import Program

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


CASES: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "mlp": (_mlp, [X, *UPS, *DOWNS, *BIASES]),
    "kept": (_kept, [X, *UPS, *DOWNS]),
    "attended": (_attended, [X, MASK, *UPS, *DOWNS]),
    "blocks": (_blocks, [_tensor(2, 3, 9, 10), *KERNELS]),
    "double": (_mlp, [v.double() for v in (X, *UPS, *DOWNS, *BIASES)]),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import both_ways

    return both_ways(CASES)


@compile_group("repeated_layers", weight=4)
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str, kind: str) -> None:
    _programs()[f"{name}-{kind}"].assert_agrees()


@compile_group("repeated_layers")
@pytest.mark.parametrize("name", CASES)
def test_layers_are_built_once(name: str) -> None:
    from tests.conformance.together import Program, trace_program
    from torch_max_backend.compile.module import build_module

    function, given = CASES[name]
    trace = trace_program(Program(name, function, given))
    text = str(build_module([trace])[0].mlir_module)
    layers = 3 if name == "blocks" else 4
    assert text.count("mo.call @") == layers
    assert text.count("mo.graph @") == 2
