"""Hooks on modules of compiled models run, or a warning says that they do not."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from torch_max_backend import backend, max_backend

X = torch.randn(2, 3)


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    torch._dynamo.reset()
    backend._hook_came_late.cache_clear()
    caplog.set_level(logging.WARNING, "torch_max_backend")
    return caplog


def _compiled(function: Any) -> Any:
    return torch.compile(function, backend=max_backend, options={"min_ops": 1})


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh())


def _doubled(module: Any, args: Any, result: Any) -> Any:
    return result * 2


def test_a_late_hook_is_warned_of(warnings: pytest.LogCaptureFixture) -> None:
    model = _model()
    compiled, expected = _compiled(model), model(X)
    torch.testing.assert_close(compiled(X), expected)
    model[1].register_forward_hook(_doubled)
    torch.testing.assert_close(compiled(X), expected)  # what Dynamo does
    (record,) = warnings.records
    assert "on a Tanh that is part of a compiled model" in record.getMessage()
    assert "torch.compiler.reset()" in record.getMessage()
    torch.compiler.reset()
    torch.testing.assert_close(compiled(X), expected * 2)


@pytest.mark.parametrize(
    "name",
    ["register_forward_pre_hook", "register_full_backward_hook", "register_full_backward_pre_hook"],
)
def test_each_kind_of_hook(name: str, warnings: pytest.LogCaptureFixture) -> None:
    model = _model()
    _compiled(model)(X)
    getattr(model[0], name)(lambda *_: None)
    assert [r.levelname for r in warnings.records] == ["WARNING"]
    getattr(model[0], name)(lambda *_: None)
    assert len(warnings.records) == 1  # once for a class


def test_models_that_a_function_uses(warnings: pytest.LogCaptureFixture) -> None:
    model = _model()
    _compiled(lambda x: model(x) + 1)(X)
    model[0].register_forward_hook(_doubled)
    assert "on a Linear" in warnings.text


def test_hooks_that_come_first_run(warnings: pytest.LogCaptureFixture) -> None:
    model = _model()
    model[1].register_forward_hook(_doubled)
    torch.testing.assert_close(_compiled(model)(X), model(X))
    assert warnings.records == []


def test_hooks_that_calls_look_for_run(warnings: pytest.LogCaptureFixture) -> None:
    model = _model()
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        compiled = _compiled(model)
        compiled(X)
        model[1].register_forward_hook(_doubled)
        torch.testing.assert_close(compiled(X), model(X))
    assert warnings.records == []


def test_hooks_outside_of_compiled_blocks_run(warnings: pytest.LogCaptureFixture) -> None:
    model = _model()
    expected = model(X)
    model[1] = _compiled(model[1])
    model(X)
    model[0].register_forward_hook(lambda *_: None)
    model[1].register_forward_hook(_doubled)  # of the compiled block, which is a module
    torch.testing.assert_close(model(X), expected * 2)
    assert warnings.records == []
