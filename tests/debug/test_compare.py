"""``debug.compare``: which node departs from eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.support.groups import compile_group
from torch_max_backend import map_to
from torch_max_backend.debug import compare
from torch_max_backend.registry.lowerings import registry

aten = torch.ops.aten


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 7)
        self.drop = nn.Dropout(0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(self.inner(x).exp())
        z = y.acosh().nan_to_num()
        return (z * 3).sum()


@compile_group("compare")
def test_a_right_model_agrees() -> None:
    torch.manual_seed(0)
    net, x = _Net(), torch.randn(5, 6)
    found = compare(net, x, backward=True, options={"cache": False})
    assert found.agrees
    assert found.first is None
    assert [g.kind for g in found.graphs] == ["forward", "backward"]
    assert all(g.nodes > 4 for g in found.graphs)
    assert net.inner.weight.grad is not None
    assert "agrees" in str(found)


@compile_group("compare")
def test_the_first_wrong_node_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch_max_backend.ops  # noqa: F401

    monkeypatch.setattr(registry, "lowerings", dict(registry))

    @map_to(aten.acosh.default, override=True)
    def wrong(self: Any) -> Any:
        return self * 1.001 + 0.5

    found = compare(_Net().eval(), torch.randn(5, 6), options={"cache": False})
    assert not found.agrees
    assert found.first is not None
    assert found.first.operator == "aten.acosh.default"
    assert "y.acosh()" in found.first.where
    assert found.first.error > found.first.eager
    assert "aten.acosh.default" in str(found)
