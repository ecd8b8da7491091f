"""The wake-ups of the thread that MAX starts with a process's first execution.

It waits for a signal with a timeout of 0.2 ms, for ever: 4600 wake-ups a second, up to a fifth of a
core of an idle process (MAX 26.7). Linux lets timers of a thread be late by its timer slack, which
a new thread takes over from the one that starts it. Nothing on the CPU waits for the timeout.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from max.driver import Buffer

    Execute = Callable[[list[Buffer]], list[Buffer]]

# <sys/prctl.h>
_SET_SLACK, _GET_SLACK = 29, 30
_SLACK = 100_000_000  # nanoseconds

_executed = False


@contextmanager
def late_timers() -> Iterator[None]:
    """Threads that this one starts in the body may be woken 0.1 s after a timeout (on Linux)."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
    if prctl is None:
        yield
        return
    before = prctl(_GET_SLACK, 0, 0, 0, 0)
    prctl(_SET_SLACK, ctypes.c_ulong(_SLACK), 0, 0, 0)
    try:
        yield
    finally:
        prctl(_SET_SLACK, ctypes.c_ulong(max(before, 1)), 0, 0, 0)


def quiet(execute: Execute) -> Execute:
    """What executes a model; if it is the process's first, MAX's thread gets late timers. Not with
    an accelerator, whose events that thread may look for."""
    from max import driver

    if _executed or driver.accelerator_count():
        return execute

    def run(buffers: list[Buffer]) -> list[Buffer]:
        global _executed
        if _executed:
            return execute(buffers)
        _executed = True
        with late_timers():
            return execute(buffers)

    return run
