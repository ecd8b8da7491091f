"""A small model compiled with MAX, its result and its speed beside eager PyTorch.

uv run examples/quickstart.py

Exits with 1 if the compiled model disagrees with eager.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from torch_max_backend import max_backend

TOLERANCE = 1e-5


class FeedForward(nn.Module):
    """The feed-forward block of a transformer."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def milliseconds(calls: list[Callable[[], object]], rounds: int = 50) -> list[float]:
    """The median time of each call; the calls take turns, so that load hits all alike."""
    times = [[seconds(call) for call in calls] for _ in range(rounds)]
    return [sorted(column)[rounds // 2] * 1e3 for column in zip(*times, strict=True)]


def main() -> int:
    torch.manual_seed(0)
    model = FeedForward().eval()
    x = torch.randn(64, 256)

    with torch.no_grad():
        expected = model(x)

        compiled = torch.compile(model, backend=max_backend)
        first = seconds(lambda: compiled(x))
        actual = compiled(x)
        error = (actual - expected).abs().max().item()

        # Forget what torch.compile knows: the next call traces again and finds the artifact.
        torch.compiler.reset()
        compiled = torch.compile(model, backend=max_backend)
        again = seconds(lambda: compiled(x))

        eager_ms, max_ms = milliseconds([lambda: model(x), lambda: compiled(x)])

    print(f"first call         {first:9.2f} s   compiles, unless an earlier run left the artifact")
    print(f"from the cache     {again:9.2f} s   torch's tracing plus loading the artifact")
    print(f"each call, eager   {eager_ms:9.3f} ms")
    print(f"each call, max     {max_ms:9.3f} ms")
    print(f"largest difference {error:9.1e}      from eager (at most {TOLERANCE:.0e} is right)")
    if not error <= TOLERANCE:
        print("FAILED: the compiled model disagrees with eager", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
