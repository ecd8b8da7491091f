"""The collector of garbage rests while a graph is compiled, and what was there counts as old."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from torch_max_backend.process import garbage as garbage_of_process
from torch_max_backend.process.garbage import collected_later, count_as_old


@pytest.fixture(autouse=True)
def nothing_is_frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(garbage_of_process, "_others_freeze", False)
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


class Node:
    """What can hold itself."""


def garbage() -> weakref.ref[Node]:
    node = Node()
    node.__dict__["self"] = node
    return weakref.ref(node)


def collections() -> list[int]:
    return [generation["collections"] for generation in gc.get_stats()]


def test_what_was_there_counts_as_old() -> None:
    gc.collect(1)
    made = [[] for _ in range(10_000)]  # type: ignore[var-annotated]
    with collected_later():
        count_as_old()
        before = collections()
        assert not gc.isenabled()
        young = {id(x) for k in (0, 1) for x in gc.get_objects(k)}
        assert young.isdisjoint(map(id, made))
        assert gc.get_count()[1:] == (0, 0)
        left = garbage()
        more = [[] for _ in range(100_000)]  # type: ignore[var-annotated]
        assert collections() == before
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    gc.collect(1)
    assert left() is None
    assert collections()[2] == before[2]
    assert len(more) > len(made)


def test_what_is_frozen_stays_so() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    count_as_old()
    assert gc.get_freeze_count() > frozen // 2 > 0  # some are freed meanwhile


def test_what_is_frozen_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: counted.append(1) or 1)
    count_as_old()
    count_as_old()
    assert len(counted) == 1


def test_a_collector_that_is_off_stays_off() -> None:
    gc.disable()
    try:
        with collected_later():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
