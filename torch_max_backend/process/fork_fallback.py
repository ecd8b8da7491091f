"""What becomes of compiled graphs in a process that was forked: eager PyTorch runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import GraphModule

from torch_max_backend.errors import ForkError
from torch_max_backend.log import get_logger

log = get_logger("fallback")

_told = False


def tell(error: ForkError) -> None:
    """Tell once that eager PyTorch runs everything in this process, and let it."""
    global _told
    if not _told:
        _told = True
        # The threads of GNU's OpenMP are not here either, and torch would wait for them.
        torch.set_num_threads(1)
        log.warning("Graphs run in eager PyTorch, on one thread: %s", error)


def eager(error: ForkError, module: GraphModule) -> Callable[..., Any]:
    """A Dynamo graph as eager PyTorch runs it in a forked child."""

    def run(*arguments: Any) -> Any:
        # Not before the call: Dynamo lets nobody change the number of threads while it traces.
        tell(error)
        return module(*arguments)

    return run
