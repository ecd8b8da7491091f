"""The model that these tests compile, once for all of them, and how they start processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parents[2]
# Far beyond what any of the processes takes on a busy machine.
TIMEOUT = 1200


class Net(nn.Module):
    """Takes and returns ``[rows, 8]``; counts its calls in a buffer."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(-scale, scale, 8))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return torch.relu(x * self.scale) + x.abs() * 0.5


def expected(net: Net, x: Tensor) -> Tensor:
    """What ``net`` returns, without a call of it."""
    with torch.no_grad():
        return torch.relu(x * net.scale) + x.abs() * 0.5


def compiled(net: nn.Module, **options: Any) -> Callable[..., Any]:
    from torch_max_backend import max_backend

    return torch.compile(net, backend=max_backend, dynamic=True, options=options)


def rows(count: int = 5, dtype: torch.dtype = torch.float32) -> Tensor:
    made = torch.linspace(-2, 3, count * 8, dtype=dtype).reshape(count, 8)
    # Copies of a compiled module forget that it was to be dynamic.
    torch._dynamo.mark_dynamic(made, 0)
    return made


def start(text: str, environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    """Start a Python process that runs ``text`` and can import this module."""
    pipe = subprocess.PIPE
    # Shells have processes in the background ignore SIGINT, and these inherit that.
    text = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n" + text
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments], cwd=ROOT, env=environment,
        stdin=pipe, stdout=pipe, stderr=pipe, text=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process has written on its standard output and error; it is killed if it hangs."""
    try:
        return process.communicate(timeout=TIMEOUT)
    except BaseException:
        process.kill()
        process.communicate()
        raise
