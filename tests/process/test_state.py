"""Copies, states and dtypes of compiled models."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.process.program import Net, compiled, expected, rows
from tests.support.groups import compile_group

pytestmark = compile_group("processes")


@pytest.fixture(autouse=True)
def inference(loaded: None) -> Iterator[None]:
    with torch.no_grad():
        yield


def agrees(function: Any, net: Any, x: Tensor | None = None) -> None:
    x = rows(dtype=net.scale.dtype) if x is None else x
    before = net.calls.item()
    torch.testing.assert_close(function(x), expected(net, x))
    assert net.calls.item() == before + 1


def test_a_deep_copy_is_a_model_of_its_own() -> None:
    net = Net()
    function: Any = compiled(net)
    agrees(function, net)
    other = copy.deepcopy(function)
    assert other._orig_mod is not net
    other._orig_mod.scale.mul_(3)
    agrees(other, other._orig_mod)
    agrees(function, net)
    assert net.calls.item() == 2


def test_a_module_with_a_compiled_part_is_copied() -> None:
    outer: Any = nn.Sequential(compiled(Net()), nn.Flatten())  # type: ignore[arg-type]
    outer(rows())
    other = copy.deepcopy(outer)
    other[0]._orig_mod.scale.mul_(-2)
    agrees(other, other[0]._orig_mod)
    agrees(outer, outer[0]._orig_mod)
    assert not torch.equal(outer(rows()), other(rows()))


@pytest.mark.parametrize("assign", [False, True])
def test_a_state_that_is_loaded_is_seen(assign: bool) -> None:
    net = Net()
    function: Any = compiled(net)
    agrees(function, net)
    file = io.BytesIO()
    torch.save({k: v * 2 + 1 for k, v in function.state_dict().items()}, file)
    file.seek(0)
    kept = net.scale
    function.load_state_dict(torch.load(file), assign=assign)
    assert (net.scale is kept) is not assign
    assert net.scale[-1] == 3
    agrees(function, net)
    agrees(function, net)


def test_another_dtype_is_another_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    # What is loaded is of float32.
    monkeypatch.setenv("TORCH_MAX_BACKEND_ENGINE", "steps")
    net = Net()
    function: Any = compiled(net)
    agrees(function, net)
    for change in (net.double, net.float, lambda: net.to(torch.float64)):
        change()
        assert function(rows(dtype=net.scale.dtype)).dtype is net.scale.dtype
        agrees(function, net)


def test_a_reset_of_dynamo_changes_nothing() -> None:
    net = Net()
    function = compiled(net)
    agrees(function, net)
    torch._dynamo.reset()
    net.scale.add_(1)
    agrees(function, net)


def test_the_original_is_pickled_as_ever() -> None:
    net = Net()
    agrees(compiled(net), net)
    other = pickle.loads(pickle.dumps(net))
    torch.testing.assert_close(other.state_dict(), net.state_dict())
    agrees(compiled(other), other)
