"""MAX's thread that waits with a timeout does not keep an idle process busy."""

from __future__ import annotations

import ctypes
import sys
import threading

import pytest

from torch_max_backend.engines.max import timers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="timer slack is Linux's")


def _slack() -> int:
    return ctypes.CDLL(None).prctl(30, 0, 0, 0, 0)


def _of_a_thread_started_now() -> int:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(_slack()))
    thread.start()
    thread.join()
    return found[0]


def test_threads_of_the_first_execution_may_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_executed", False)
    before = _slack()
    execute = timers.quiet(lambda buffers: [_of_a_thread_started_now()])
    assert execute([]) == [100_000_000]
    assert _slack() == _of_a_thread_started_now() == before
    assert execute([]) == [before]


def test_an_error_restores_the_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "_executed", False)
    before = _slack()

    def fails(buffers: list[object]) -> list[object]:
        raise ValueError("wrong buffers")

    with pytest.raises(ValueError, match="wrong buffers"):
        timers.quiet(fails)([])
    assert _slack() == before
