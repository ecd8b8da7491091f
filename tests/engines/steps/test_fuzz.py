"""Random graphs as steps, bit by bit beside eager PyTorch: a few seconds of what
`python -m tests.engines.steps.fuzz` does for as long as it is given."""

from __future__ import annotations

import pytest

from tests.engines.steps.fuzz import check, seeds_of
from tests.engines.steps.random_graphs import graph_of

# CPU seconds for all graphs of a test.
SECONDS = 4.0


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_random_graphs_give_the_bits_of_eager(dynamic: bool) -> None:
    done = left_out = 0
    for seed in seeds_of(0, SECONDS):
        found = check(graph_of(seed), seed, dynamic)
        done, left_out = done + found, left_out + (not found)
    assert left_out <= 1 + done // 10, f"{left_out} of {done + left_out} graphs were refused"
