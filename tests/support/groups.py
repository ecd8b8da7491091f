"""Which tests that compile run in one worker.

Tests that share a MAX module do. A process that has compiled keeps about 2 GB, so there are a few
groups of them; but more than workers on a small machine, or the others would wait for the longest.
"""

from __future__ import annotations

import pytest

GROUPS = 8

# What tests that name a group themselves bring.
_load = [60.0, 5.0, *[0.0] * (GROUPS - 2)]
_assigned: dict[str, int] = {}


def compile_group(module: str, weight: float = 1.0) -> pytest.MarkDecorator:
    """The mark that puts tests which share the compiled module ``module`` on one worker.

    Args:
        module: Any name; tests with one name run in one process.
        weight: How long it takes, for balance: 1 is about 10 CPU seconds with empty caches.
    """
    if module not in _assigned:
        _assigned[module] = min(range(GROUPS), key=_load.__getitem__)
        _load[_assigned[module]] += weight
    return pytest.mark.xdist_group(f"compile-{_assigned[module]}")
