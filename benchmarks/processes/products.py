"""Matrix products and convolutions, one at a time, beside eager.

Run as ``python -m benchmarks.processes.products [SECONDS]``. Prints Markdown: milliseconds of
each by every provider of the bank that this machine has, and by eager PyTorch, in turns.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.processes.steady import alternate
from torch_max_backend.gemm_providers import choice as bank

# Rows, columns, depth; whether the right operand is kept as torch keeps weights.
PRODUCTS = [
    (64, 768, 768, True), (128, 768, 768, True), (128, 2304, 768, True), (128, 768, 3072, True),
    (1, 768, 768, True), (4, 768, 768, True), (1, 4096, 1024, True), (64, 3136, 576, False),
    (512, 49, 4608, False), (32, 320, 320, True), (1024, 1024, 1024, True),
]  # fmt: skip
# Channels in, channels out, size, kernel, stride, padding, groups, dilation.
CONVOLUTIONS = [
    (3, 64, 224, 7, 2, 3, 1, 1), (64, 64, 56, 3, 1, 1, 1, 1), (64, 128, 56, 3, 2, 1, 1, 1),
    (128, 128, 28, 3, 1, 1, 1, 1), (256, 256, 14, 3, 1, 1, 1, 1), (512, 512, 7, 3, 1, 1, 1, 1),
    (64, 128, 56, 1, 2, 0, 1, 1), (40, 40, 56, 7, 1, 3, 40, 1), (320, 320, 7, 7, 1, 3, 320, 1),
    (3, 40, 224, 4, 4, 0, 1, 1), (40, 80, 56, 2, 2, 0, 1, 1), (256, 256, 4, 3, 1, 1, 1, 1),
    (160, 256, 33, 3, 1, 12, 1, 12), (160, 256, 33, 3, 1, 24, 1, 24),
    (160, 256, 33, 3, 1, 36, 1, 36), (960, 256, 4, 3, 1, 12, 1, 12),
]  # fmt: skip


def compiled(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The function with the products of one provider."""
    from torch_max_backend import max_backend

    options = {"bank": name, "fallback": "error"}
    return torch.compile(function, backend=max_backend, dynamic=False, options=options)


def main(seconds: float) -> None:
    """The command line; see the top of this file."""
    torch.manual_seed(0)
    names = [n for n in bank.names() if bank.provider(n) is not None]
    columns = ["eager", *names, *(f"{n}/eager" for n in names)]
    print(f"| m x n x k or convolution | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for m, n, k, turned in PRODUCTS:
        a, b = torch.randn(m, k), torch.randn(n, k) if turned else torch.randn(k, n)
        function = (lambda a, b: a @ b.t()) if turned else torch.mm
        label = f"{m} x {n} x {k} {'nt' if turned else 'nn'}"
        _row(label, function, (a, b), names, seconds)
    for inputs, outputs, size, kernel, stride, padding, groups, dilation in CONVOLUTIONS:
        x = torch.randn(1, inputs, size, size)
        weight = torch.randn(outputs, inputs // groups, kernel, kernel)
        settings = (None, stride, padding, dilation, groups)
        label = f"{inputs}, {outputs}, {size}, {kernel}, {stride}, {groups}, {dilation}"
        _row(label, lambda x, w, s=settings: F.conv2d(x, w, *s), (x, weight), names, seconds)


def _row(
    label: str,
    function: Callable[..., Any],
    arguments: tuple[torch.Tensor, ...],
    names: list[str],
    seconds: float,
) -> None:
    torch.compiler.reset()
    with torch.no_grad():
        calls = {"eager": function} | {n: compiled(function, n) for n in names}
        for call in calls.values():
            call(*arguments)
        time.sleep(0.2)  # threads that spin after the last call
        times = alternate(
            {n: (lambda c=c: c(*arguments)) for n, c in calls.items()}, seconds, settle=0.1
        )
    eager = times["eager"]
    ratios = [f"{times[n] / eager:.2f}" for n in names]
    print(
        f"| {label} | {' | '.join([*(f'{t:.3f}' for t in times.values()), *ratios])} |", flush=True
    )


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 2.0)
