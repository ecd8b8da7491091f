"""Which worker runs which tests that compile.

A process that has compiled keeps about 1.5 GB; so all tests that compile share a few workers, and
tests that share a MAX module share one.
"""

from __future__ import annotations

import pytest

WORKERS = 3

# What tests that name a worker themselves bring.
_load = [25.0, 5.0, *[0.0] * (WORKERS - 2)]
_assigned: dict[str, int] = {}


def compile_group(module: str, weight: float = 1.0) -> pytest.MarkDecorator:
    """The mark that puts tests which share the compiled module ``module`` on one worker.

    Args:
        module: Any name; tests with one name run in one process.
        weight: How long it takes, for balance: 1 is about 10 CPU seconds with empty caches.
    """
    if module not in _assigned:
        _assigned[module] = min(range(WORKERS), key=_load.__getitem__)
        _load[_assigned[module]] += weight
    return pytest.mark.xdist_group(f"compile-{_assigned[module]}")
