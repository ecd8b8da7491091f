"""Stages of a model that can be read, and the answer for one operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.driver.test_partitioned import unknown
from torch_max_backend import check, explain


def function(x: Tensor, w: Tensor) -> Tensor:
    return unknown((x @ w).relu()).softmax(-1).sin()


X, W = torch.randn(3, 4), torch.randn(4, 4)


def test_each_stage_is_a_text() -> None:
    options = {"min_ops": 1, "fallback": "eager"}
    stages = explain(function, X, W, options=options).stages()
    parts = ["part 0", "part 0, steps", "part 1", "part 1, steps"]
    assert [s.name for s in stages] == ["dynamo", "aten", "parts", *parts]
    assert all(s.graph == 0 for s in stages)
    texts = {s.name: s.text for s in stages}
    assert "softmax" in texts["dynamo"]
    assert "torch.ops.aten._softmax.default" in texts["aten"]
    assert "self.part1" in texts["parts"].replace("part1(", "self.part1(")
    assert "_softmax" in texts["part 1"]
    assert "_softmax" not in texts["part 0"]
    assert "tmb_matmul" in texts["part 0, steps"]
    assert str(stages[0]).startswith("# Graph 0, dynamo\n")


def test_what_max_compiles_is_shown_as_its_module() -> None:
    stages = explain(torch.sin, X, options={"min_ops": 1, "engine": "max"}).stages()
    assert stages[-1].name == "part 0, MAX"
    assert "mo.graph" in stages[-1].text


def test_forward_and_backward_have_numbers() -> None:
    stages = explain(lambda x: (x * x).sum(), X.clone().requires_grad_()).stages()
    assert {s.graph for s in stages if s.name == "aten"} == {0, 1}


@pytest.mark.parametrize(
    ("operator", "args", "operators"),
    [
        (torch.ops.aten.add.Tensor, (X, X), ["aten.add.Tensor"]),
        (torch.addmv, (X[0, :3], X, W[0]), ["aten.addmv.default"]),
        (torch.stft, (torch.ones(200), 16), None),
    ],
)
def test_an_operator_that_is_taken(operator: Any, args: Any, operators: list[str] | None) -> None:
    kwargs = {"return_complex": True} if operator is torch.stft else {}
    found = check(operator, *args, **kwargs)
    assert found
    assert found.engine == "steps"
    assert not found.reasons
    assert operators in (None, found.operators)
    assert ": taken" in str(found)


def test_an_operator_that_is_not() -> None:
    found = check(unknown, X, options={"fallback": "eager"})
    assert not found
    assert found.engine == ""
    assert any("outside PyTorch" in why for why in found.reasons.values())
    assert "torch runs it" in str(found)


def test_an_operator_that_dynamo_does_not_trace() -> None:
    found = check(torch.ops.aten.nonzero.default, X)
    assert not found
    assert "Dynamic shape operator" in found.reasons[""]
    found = check(torch.ops.aten.view.default, X, [12])
    assert not found
    assert "views alone" in found.reasons[""]
