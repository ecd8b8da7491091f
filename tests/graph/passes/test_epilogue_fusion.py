"""Convolutions and products take up what follows them, and only that."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.tracing import traced
from torch_max_backend.graph.passes.epilogue_fusion import fuse_epilogues

aten = torch.ops.aten
ours = torch.ops.torch_max_backend

# The same in each run: they are part of the modules that are kept.
_numbers = partial(torch.randn, generator=torch.Generator().manual_seed(0))
_IMAGE = _numbers(2, 4, 9, 11)
_WEIGHT = _numbers(4, 4, 3, 3)
_ROWS = _numbers(6, 5)
_MATRIX = _numbers(8, 5)
_VECTOR = _numbers(8)


def _convolved(x: torch.Tensor) -> torch.Tensor:
    return F.conv2d(x, _WEIGHT, padding=1)


def _linear(x: torch.Tensor) -> torch.Tensor:
    return F.linear(x, _MATRIX, _VECTOR)


def _tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
    return 0.5 * x * (1 + torch.tanh(inner))


def _norm(x: torch.Tensor) -> torch.Tensor:
    four = torch.arange(4.0)
    norm = aten._native_batch_norm_legit_no_training
    return norm(x, four - 1, four / 3, four, four + 0.5, 0.1, 1e-3)[0]


FUSED: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "norm": (lambda x: _norm(_convolved(x)), _IMAGE),
    "norm, relu": (lambda x: _norm(_convolved(x)).relu(), _IMAGE),
    "norm, residual, relu": (lambda x: (_norm(_convolved(x)) + x).relu(), _IMAGE),
    "residual from the left": (lambda x: x + _convolved(x), _IMAGE),
    "bias, relu": (lambda x: F.conv2d(x, _WEIGHT, _VECTOR[:4]).relu(), _IMAGE),
    "one dimension": (lambda x: F.conv1d(x, _WEIGHT[..., 0], padding=1).relu() , _IMAGE[..., 0]),
    "convolution, gelu": (lambda x: F.gelu(_norm(_convolved(x)) + x), _IMAGE),
    "convolution, silu": (lambda x: F.silu(_convolved(x)), _IMAGE),
    "convolution, relu6": (lambda x: F.relu6(_convolved(4 * x)), _IMAGE),
    "convolution, hardsigmoid": (lambda x: F.hardsigmoid(_norm(_convolved(x))), _IMAGE),
    "convolution, hardswish": (lambda x: F.hardswish(_norm(_convolved(x)) + x), _IMAGE),
    "convolution, hardswish written out": (
        lambda x: (lambda y: y * torch.clamp(y + 3, 0, 6) / 6)(_convolved(x)), _IMAGE,
    ),
    "groups": (lambda x: F.conv2d(x, _WEIGHT[:, :1], groups=4, stride=2).relu(), _IMAGE),
    "linear, relu": (lambda x: F.linear(x, _MATRIX, _VECTOR).relu(), _ROWS),
    "linear, gelu": (lambda x: F.gelu(F.linear(x, _MATRIX, _VECTOR)), _ROWS),
    "linear, tanh gelu": (
        lambda x: F.gelu(F.linear(x.view(2, 3, 5), _MATRIX, _VECTOR), approximate="tanh"),
        _ROWS,
    ),
    "product, silu": (lambda x: F.silu(F.linear(x, _MATRIX)) * 2, _ROWS),
    "linear, gelu written out": (
        lambda x: (lambda y: y * 0.5 * (1 + torch.erf(y / math.sqrt(2))))(_linear(x)), _ROWS,
    ),
    "linear, tanh gelu written out": (
        lambda x: _tanh_gelu(_linear(x.view(2, 3, 5))) - 1, _ROWS,
    ),
    "convolution, silu written out": (
        lambda x: (lambda y: y * torch.sigmoid(y))(_convolved(x)), _IMAGE,
    ),
}  # fmt: skip

KEPT: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "used twice": (lambda x: (lambda y: (y.relu(), y))(_convolved(x)), _IMAGE),
    "norm used twice": (lambda x: (lambda y: _norm(y) + y)(_convolved(x)), _IMAGE),
    "a broadcast residual": (lambda x: _convolved(x) + x[:1], _IMAGE),
    "transposed": (lambda x: F.conv_transpose2d(x, _WEIGHT).relu(), _IMAGE),
    "16 bits": (lambda x: F.conv2d(x, _WEIGHT.bfloat16()).relu(), _IMAGE.bfloat16()),
    "an activation of convolutions": (
        lambda x: F.relu6(F.linear(4 * x, _MATRIX, _VECTOR)), _ROWS,
    ),
    "another bound": (lambda x: F.hardtanh(_convolved(4 * x), 0.0, 5.0), _IMAGE),
    "nothing": (lambda x: F.linear(x, _MATRIX[:, :0], _VECTOR).relu(), _ROWS[:, :0]),
    "another bias": (lambda x: torch.addmm(x[:, :1], x, x.t()[:, :6]).relu(), _ROWS),
    "two activations": (
        lambda x: (lambda y: y.relu() + F.gelu(y))(F.linear(x, _MATRIX, _VECTOR)),
        _ROWS,
    ),
    "another factor": (
        lambda x: (lambda y: y * 0.5 * (1 + torch.erf(y / 1.5)))(_linear(x)),
        _ROWS,
    ),
    "a part of what is written out": (
        lambda x: (lambda y: (lambda z: y * 0.5 * (1 + z) + z)(torch.erf(y / math.sqrt(2))))(
            _linear(x)
        ),
        _ROWS,
    ),
    "another tensor in it": (
        lambda x: (lambda y: y * torch.sigmoid(y * x[:, :1]))(_linear(x)),
        _ROWS,
    ),
    "float64": (lambda x: F.gelu(F.linear(x, _MATRIX.double())), _ROWS.double()),
}  # fmt: skip


def _targets(module: torch.fx.GraphModule) -> list[Any]:
    return [n.target for n in module.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("name", FUSED)
def test_what_follows_becomes_part(name: str) -> None:
    function, x = FUSED[name]
    module = traced(function, x)
    before = _targets(module)
    fuse_epilogues(module)
    module.graph.lint()
    after = _targets(module)
    assert {ours.fused_convolution.default, ours.fused_addmm.default} & {*after}
    assert len(after) < len(before)
    left = {aten.convolution.default, aten.addmm.default, aten.mm.default, aten.relu.default}
    assert not left & {*after}
    # The operators mean what they replace.
    known = {tuple(t.shape): t for t in (_WEIGHT, _MATRIX, _VECTOR, x)}
    holders = [n for n in module.graph.nodes if n.op == "placeholder"]
    got = module(*(known[tuple(n.meta["val"].shape)] for n in holders))
    torch.testing.assert_close(got[0], function(x))


@pytest.mark.parametrize("name", KEPT)
def test_what_others_need_too_stays(name: str) -> None:
    function, x = KEPT[name]
    module = traced(function, x)
    before = _targets(module)
    fuse_epilogues(module)
    assert _targets(module) == before
