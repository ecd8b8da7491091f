"""A model that trains while a process of its own compiles it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from tests.support.groups import compile_group


class Curve(torch.nn.Module):
    """Nothing that is expensive to compile."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = (torch.nn.Parameter(torch.randn(4)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.inner) * self.outer


def _step(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The result of a training step and the gradients it leaves."""
    model.zero_grad()
    result = model(x)
    result.square().sum().backward()
    return [result.detach(), *(p.grad.clone() for p in model.parameters())]


def _wait() -> None:
    for thread in threading.enumerate():
        if thread.name == "torch_max_backend-compile":
            thread.join(600)
            assert not thread.is_alive()


@compile_group("worker", weight=2)
def test_trains_with_eager_until_both_graphs_are_compiled(
    private_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from torch_max_backend import max_backend

    torch.manual_seed(0)
    model = Curve()
    compiled = torch.compile(model, backend=max_backend, options={"background": True})
    x = torch.randn(5, 4)
    expected = _step(model, x)

    def check() -> None:
        for ours, theirs in zip(_step(compiled, x), expected, strict=True):
            torch.testing.assert_close(ours, theirs)

    check()  # nothing can be ready yet
    _wait()
    check()
    assert not [r for r in caplog.records if "background failed" in r.getMessage()]
    # Forward and backward, each as an artifact for the next process.
    assert len(list((private_cache / "artifacts").iterdir())) == 2
