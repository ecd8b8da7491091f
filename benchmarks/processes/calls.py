"""What a call costs beside its kernels: small graphs, many parameters, eager operators in turns.

Run as ``python -m benchmarks.processes.calls FRAMEWORK [SECONDS]``; FRAMEWORK is ``inductor``,
``steps`` or ``nothing``, whose calls only return: what they cost is Dynamo's, guards most of it.
Prints one line of JSON, medians in microseconds:

- ``add``: ``x + y`` on 8x8; ``products_4`` and ``products_36``: products of 8x32 by 32x32, each of
  what the one before made; ``product``: what each further one costs; ``kernel``: what it costs
  where all are by one matrix.
- ``parameters``: what each call costs more where 300 parameters of 8 numbers are added up instead
  of one of 2400 that holds them all.
- ``alone`` and ``in_turns``: a transformer layer 256 wide on 64 tokens, called again and again, and
  with eager products of 256x256 between the calls; ``eager_alone`` and ``eager_in_turns``: those
  products.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.processes.alone import compiled

PARAMETERS = 300
# Eager products between two calls.
_BETWEEN = 8

Call = Callable[[], Any]


def medians(calls: list[Call], seconds: float) -> list[float]:
    """Median microseconds of calls that are made in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for call in calls * 20:
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for call, spent in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
    return [statistics.median(spent) * 1e6 for spent in times]


def _compiled(function: Callable[..., Any], framework: str) -> Callable[..., Any]:
    if framework != "nothing":
        return compiled(function, framework)

    def backend(module: torch.fx.GraphModule, arguments: list[Any]) -> Callable[..., Any]:
        results = module(*arguments)
        return lambda *_: results

    return torch.compile(function, backend=backend)


def _products(framework: str, count: int, matrices: int) -> Call:
    x = torch.randn(8, 32)
    weights = [torch.randn(32, 32) / 6 for _ in range(matrices)]

    def chain(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for i in range(count):
            x = x @ weights[i % matrices]
        return x

    call = _compiled(chain, framework)
    return lambda: call(x, weights)


class _Sum(nn.Module):
    """Adds all its parameters to what it is given."""

    def __init__(self, parts: int, size: int) -> None:
        super().__init__()
        self.parts = nn.ParameterList([torch.randn(size) for _ in range(parts)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.cat([*self.parts])


def _sum(framework: str, parts: int, size: int) -> Call:
    x = torch.randn(parts * size)
    call = _compiled(_Sum(parts, size), framework)
    return lambda: call(x)


def _layer(framework: str) -> Call:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True).eval()
    x = torch.randn(1, 64, 256)
    call = _compiled(lambda x: layer(x), framework)
    return lambda: call(x)


def measure(framework: str, seconds: float) -> dict[str, float]:
    """The figures of a framework."""
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    add = _compiled(lambda x, y: x + y, framework)
    found: dict[str, float] = {}
    (found["add"],) = medians([lambda: add(x, y)], seconds)
    (found["products_4"],) = medians([_products(framework, 4, 4)], seconds)
    (found["products_36"],) = medians([_products(framework, 36, 36)], seconds)
    found["product"] = (found["products_36"] - found["products_4"]) / 32
    (few,) = medians([_products(framework, 4, 1)], seconds)
    (many,) = medians([_products(framework, 36, 1)], seconds)
    found["kernel"] = (many - few) / 32
    one, parts = _sum(framework, 1, 8 * PARAMETERS), _sum(framework, PARAMETERS, 8)
    (single,) = medians([one], seconds)
    (several,) = medians([parts], seconds)
    found["parameters"] = several - single
    layer = _layer(framework)
    a, b = torch.randn(256, 256), torch.randn(256, 256)

    def eager() -> None:
        for _ in range(_BETWEEN):
            torch.mm(a, b)

    (found["alone"],) = medians([layer], seconds)
    (found["eager_alone"],) = medians([eager], seconds)
    found["in_turns"], found["eager_in_turns"] = medians([layer, eager], seconds)
    return found


def main(framework: str, seconds: str = "2") -> None:
    """The command line; see the top of this file."""
    torch.manual_seed(0)
    with torch.no_grad():
        print(json.dumps(measure(framework, float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
