"""A word at the end of a process for which nothing was compiled, though torch.compile was asked to:
Dynamo itself says nothing of it."""

from __future__ import annotations

import atexit
from functools import cache

from torch_max_backend.compat.dynamo import counters
from torch_max_backend.log import get_logger

log = get_logger("backend")

_reached = False


@cache
def asked() -> None:
    """Called when torch.compile is given the backend."""
    atexit.register(_say)


def reached() -> None:
    """Called with each graph."""
    global _reached
    _reached = True


def _say() -> None:
    called = counters["frames"]["total"] and not counters["stats"]["unique_graphs"]
    if called and not _reached:
        log.warning(
            "torch.compile was given this backend, and nothing was compiled: Dynamo has found no "
            "graph in what was called. It compiles modules of torch, such as nn.Sequential, only "
            "inside a function or module of yours, or given to torch.compile themselves. Of "
            "DistributedDataParallel(model), compile the model inside: model.compile(backend="
            '"max"), then wrap it. TORCH_LOGS=graph_breaks shows what is in the way.'
        )
