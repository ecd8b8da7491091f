"""Training through ``torch.compile`` beside eager PyTorch: one script, run with both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, optim
from torch._dynamo.utils import counters

from tests.precompiled import Precompiled, Script

Compile = Callable[..., Any]
"""``torch.compile`` with the backend set, or what gives back its argument for eager PyTorch."""


def like_eager(
    graphs: int | None = None, tolerance: float | None = None
) -> Callable[[Callable[[Compile], Any]], Callable[[Precompiled], None]]:
    """Make a test of a script: compiled, it returns what it does in eager PyTorch.

    Args:
        graphs: Of how many graphs of Dynamo it consists: one more is a compile that was not needed.
        tolerance: Relative and absolute; by default that of ``torch.testing`` for the dtype.
    """

    def test_of(script: Callable[[Compile], Any]) -> Callable[[Precompiled], None]:
        seeded = _seeded(script)

        def test(programs: Precompiled) -> None:
            counters.clear()
            ours = programs.run(seeded)
            assert programs.loaded > 0
            assert graphs is None or counters["stats"]["unique_graphs"] == graphs
            theirs = seeded.run(lambda function, **_: function)
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)

        return _named_after(script, test, seeded)

    return test_of


def compiled_only(script: Callable[[Compile], None]) -> Callable[[Precompiled], None]:
    """Make a test of a script that asserts by itself what compiled code does."""
    seeded = _seeded(script)

    def test(programs: Precompiled) -> None:
        programs.run(seeded)
        assert programs.loaded > 0

    return _named_after(script, test, seeded)


def _seeded(script: Callable[[Compile], Any]) -> Script:
    def run(compile: Compile) -> Any:
        torch.manual_seed(0)
        return script(compile)

    return Script(run)


def _named_after(script: Any, test: Any, seeded: Script) -> Callable[[Precompiled], None]:
    # Not functools.wraps: pytest would look for a fixture that is named as the script's argument.
    test.__name__, test.__doc__, test.__module__ = (
        script.__name__,
        script.__doc__,
        script.__module__,
    )
    test.script = seeded
    return test


class Net(nn.Module):
    """Four numbers to three, with parameters to learn and statistics to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


def batches(count: int = 3) -> list[Tensor]:
    return [torch.randn(6, 4) for _ in range(count)]


def sgd(net: nn.Module) -> optim.Optimizer:
    return optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


def gradients(net: nn.Module) -> list[Tensor]:
    """Copies of all gradients there are."""
    return [p.grad.clone() for p in net.parameters() if p.grad is not None]


def state(net: nn.Module) -> list[Tensor]:
    """Copies of parameters and buffers."""
    return [t.detach().clone() for t in net.state_dict().values()]
