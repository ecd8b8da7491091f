"""What a graph of a single operator takes in eager PyTorch and by a step.

Run as ``python -m benchmarks.processes.least_steps``: prints Markdown, microseconds of a call
of the compiled function, which torch runs (``min_ops=100``) or a step (``min_ops=1``), and what
the first call takes, in milliseconds of the processor.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.processes.calls import medians

CASES: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "abs, 8x8": (torch.abs, [torch.randn(8, 8)]),
    "add, 8x8": (torch.add, [torch.randn(8, 8), torch.randn(8, 8)]),
    "matmul, 8x8": (torch.matmul, [torch.randn(8, 8), torch.randn(8, 8)]),
    "index, 64x64": (lambda x, i: x[i], [torch.randn(64, 64), torch.randint(64, (32,))]),
    "cumsum, 64x64": (lambda x: x.cumsum(0), [torch.randn(64, 64)]),
    "layer_norm, 64x64": (lambda x: functional.layer_norm(x, (64,)), [torch.randn(64, 64)]),
    "cat, 64x64": (lambda x, y: torch.cat([x, y]), [torch.randn(64, 64), torch.randn(64, 64)]),
    "sort, 1000": (lambda x: x.sort()[0], [torch.randn(1000)]),
    "inv, 32x32": (torch.linalg.inv, [torch.randn(32, 32)]),
    "conv2d, 64 channels, 28x28": (
        torch.conv2d,
        [torch.randn(1, 64, 28, 28), torch.randn(64, 64, 3, 3)],
    ),
    "matmul, 512x512": (torch.matmul, [torch.randn(512, 512), torch.randn(512, 512)]),
    "sigmoid, 1024x1024": (torch.sigmoid, [torch.randn(1024, 1024)]),
    "softmax, 1024x1024": (lambda x: x.softmax(-1), [torch.randn(1024, 1024)]),
}
SECONDS = 0.5


def measured(function: Callable[..., Any], inputs: list[Tensor], least: int) -> tuple[float, float]:
    """Microseconds of a call, and milliseconds of the processor of the first one."""
    torch._dynamo.reset()
    options = {"engine": "steps", "min_ops": least, "cache": False}
    call = torch.compile(function, backend="max", options=options)
    begun = time.process_time()
    call(*inputs)
    first = time.process_time() - begun
    (call_us,) = medians([lambda: call(*inputs)], SECONDS)
    return call_us, first * 1e3


@torch.no_grad()
def main() -> None:
    """The command line; see the top of this file."""
    torch.set_num_threads(2)
    print("| operator | torch us | step us | step/torch | first call, torch ms | step ms |")
    print("|---|---|---|---|---|---|")
    measured(torch.neg, [torch.randn(3)], 1)  # What a process does once.
    for name, (function, inputs) in CASES.items():
        torchs, first = measured(function, inputs, 100)
        ours, our_first = measured(function, inputs, 1)
        ratio = ours / torchs
        print(
            f"| {name} | {torchs:.1f} | {ours:.1f} | {ratio:.2f} | {first:.0f} | {our_first:.0f} |"
        )


if __name__ == "__main__":
    main()
