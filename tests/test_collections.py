"""The collector of garbage rests while a graph is compiled, and has nothing to catch up on then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from torch_max_backend.backend import collected_later


@pytest.fixture(autouse=True)
def nothing_is_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


def test_what_was_made_counts_as_old() -> None:
    collections = [s["collections"] for s in gc.get_stats()]
    with collected_later():
        made: list[list[int]] = [[] for _ in range(100_000)]
        assert not gc.isenabled()
    assert gc.isenabled()
    assert [s["collections"] for s in gc.get_stats()] == collections
    young, *older = gc.get_count()
    assert young < 1000
    assert older == [0, 0]
    assert gc.get_freeze_count() == 0
    made[0].append(0)


def test_what_is_frozen_stays_so() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with collected_later():
        pass
    assert gc.get_freeze_count() >= frozen > 0


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
