"""Dynamo, which takes Python code apart: its counters, errors and registry of backends.

Imports Dynamo, 1 s that loading a package does without.
"""

from __future__ import annotations

from torch_max_backend.compat.names import names_of

with names_of("torch"):
    from torch._dynamo import OptimizedModule, config, output_graph, reset
    from torch._dynamo.backends.registry import lookup_backend
    from torch._dynamo.exc import ShortenTraceback, TorchDynamoException
    from torch._dynamo.utils import counters

__all__ = [
    "OptimizedModule",
    "ShortenTraceback",
    "TorchDynamoException",
    "config",
    "counters",
    "lookup_backend",
    "output_graph",
    "reset",
]
