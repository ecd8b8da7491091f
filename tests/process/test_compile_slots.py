"""Who compiles where: in this process, in one of its own, or later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from torch_max_backend.process import compile_slots

pytestmark = pytest.mark.xdist_group("compile-0")


@pytest.fixture(autouse=True)
def slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Slots of the test's own; sets how many there are."""
    monkeypatch.setattr(compile_slots.tempfile, "gettempdir", lambda: str(tmp_path))

    def jobs(count: int) -> None:
        monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", str(count))

    return jobs


class Compile(threading.Thread):
    """A thread that takes a place and stays until it is told to end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.placed, self.end = threading.Event(), threading.Event()
        self.here: bool | None = None
        self.start()

    def run(self) -> None:
        with compile_slots.compile_place() as self.here:
            self.placed.set()
            self.end.wait(600)

    def finish(self) -> None:
        self.end.set()
        self.join(1200)
        assert not self.is_alive()


def test_the_first_compiles_here_and_others_elsewhere(slots: Callable[[int], None]) -> None:
    slots(3)
    first = Compile()
    assert first.placed.wait(600)
    others = [Compile(), Compile()]
    assert all(o.placed.wait(600) for o in others)
    assert first.here is True
    assert [o.here for o in others] == [False, False]
    # No slot is left.
    late = Compile()
    assert not late.placed.wait(0.5)
    first.finish()
    # The lock came free with the slot.
    assert late.placed.wait(600)
    assert late.here is True
    for thread in [*others, late]:
        thread.finish()


def test_with_one_slot_the_second_waits(slots: Callable[[int], None]) -> None:
    slots(1)
    first = Compile()
    assert first.placed.wait(600)
    second = Compile()
    assert not second.placed.wait(0.5)
    first.finish()
    assert second.placed.wait(600)
    assert (first.here, second.here) == (True, True)
    second.finish()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_thread_takes_one_slot_only(slots: Callable[[int], None], jobs: int) -> None:
    slots(jobs)
    done = threading.Event()

    def nested() -> None:
        with compile_slots.compile_place() as here, compile_slots.compile_slot(lock=here):
            done.set()

    thread = threading.Thread(target=nested, daemon=True)
    holders = [Compile() for _ in range(jobs - 1)]
    assert all(h.placed.wait(600) for h in holders)
    thread.start()
    assert done.wait(600)
    thread.join(1200)
    for holder in holders:
        holder.finish()
    # The slot is free again.
    again = Compile()
    assert again.placed.wait(600)
    again.finish()


def test_a_slot_is_free_after_a_failure(slots: Callable[[int], None]) -> None:
    slots(1)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"), compile_slots.compile_place():
            raise ValueError("no")


def test_those_who_wait_for_the_lock_do_not_hold_up_places(slots: Callable[[int], None]) -> None:
    """``compile_slot`` takes the lock first: its waiters must hold no slot."""
    slots(2)
    first = Compile()
    assert first.placed.wait(600)
    entered = threading.Event()

    def direct() -> None:
        with compile_slots.compile_slot():
            entered.set()

    waiter = threading.Thread(target=direct, daemon=True)
    waiter.start()
    assert not entered.wait(0.3)
    other = Compile()
    assert other.placed.wait(600)
    assert other.here is False
    first.finish()
    assert entered.wait(600)
    other.finish()
