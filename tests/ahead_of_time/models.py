"""Small modules that take the roads through export, and their example arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import Dim


class Scaled(torch.nn.Module):
    """The state of a linear layer without its product, for which MAX compiles a third longer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(8))
        self.bias = torch.nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.bias


class Tied(torch.nn.Module):
    """State of all kinds, tied and not contiguous; nested arguments, one of which it writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Scaled()
        self.second = Scaled()
        self.second.weight = self.first.weight
        self.scale = torch.nn.Parameter(torch.randn(3, 8).t()[:, 0])
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("shift", torch.randn(8), persistent=False)
        self.table = torch.randn(100)

    def forward(
        self, x: torch.Tensor, cache: dict[str, torch.Tensor], flag: Any = None, k: int = 3
    ) -> Any:
        self.steps += 1
        y = self.second(self.first(x) * self.scale) + self.shift
        cache["sums"].add_(1)
        return {
            "y": y,
            "given": (x, x.view(-1), x.shape[0], flag),
            "columns": y[:, :2].t(),
            "steps": self.steps * k,
            "table": self.table * 2,
        }


class Pairs(torch.nn.Module):
    """Its size is known only as twice another."""

    def forward(self, x: torch.Tensor) -> Any:
        return x[1:] - x[:-1], x.shape[0], None, "text"


class Fours(torch.nn.Module):
    """Sizes with a condition, and an int that varies."""

    def forward(self, x: torch.Tensor, n: int, y: torch.Tensor) -> Any:
        return [x.view(-1, 4) * n, y.sum(), torch.zeros(n)]


@dataclass
class Case:
    """A module, and how it is exported.

    Attributes:
        make: Makes the module, the same one each time.
        arguments: Makes the arguments of a call, for a size.
        dynamic: As ``torch.export.export`` takes it.
        size: That of the example.
    """

    make: Callable[[], torch.nn.Module]
    arguments: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]
    dynamic: Any
    size: int

    def module(self) -> torch.nn.Module:
        torch.manual_seed(0)
        return self.make()

    def call(self, size: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments, the same ones each time."""
        torch.manual_seed(size)
        return self.arguments(size)


_BATCH, _HALF = Dim("batch", min=1, max=64), Dim("half", min=3, max=100)

CASES = {
    "tied": Case(
        Tied,
        lambda n: ((torch.randn(n, 8), {"sums": torch.randn(n + 2, 8)}), {"k": 5}),
        {"x": {0: _BATCH}, "cache": {"sums": {0: _BATCH + 2}}, "k": None},
        4,
    ),
    "pairs": Case(Pairs, lambda n: ((torch.randn(n, 3),), {}), ({0: 2 * _HALF},), 8),
    "fours": Case(
        Fours,
        lambda n: ((torch.randn(n, 3), n - 1, torch.randn(n + 1, 2)), {}),
        ({0: Dim.AUTO}, Dim.AUTO, {0: Dim.AUTO}),
        8,
    ),
}
