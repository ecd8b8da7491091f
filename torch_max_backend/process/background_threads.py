"""Threads for work that nobody waits for, each of which does its pieces one after the other."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable

from torch_max_backend.process import fork_safety

# Seconds after which a thread without work ends.
_IDLE = 1


def at_exit() -> bool:
    """Whether Python is ending. Threads may still run, but temporary folders are gone: what they do
    not find is no reason for a warning."""
    return not threading.main_thread().is_alive()


class BackgroundThread:
    """A thread that starts with the first work and ends when there is none.

    Args:
        name: Of the thread, after the package's.
        niceness: How much less than others it is to run (19: when nothing else does), on Linux; of
            the processes that it starts, too.
    """

    def __init__(self, name: str, niceness: int = 0) -> None:
        self._name = f"torch_max_backend-{name}"
        self._niceness = niceness
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = fork_safety.lock()
        self._thread: threading.Thread | None = None
        fork_safety.in_child(self._in_child)

    def later(self, work: Callable[[], None]) -> None:
        """Have ``work``, which raises nothing, called once what came before is done."""
        self._waiting.put(work)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()

    def drop(self, timeout: float) -> None:
        """Forget what waits, and wait for what runs, at most for so many seconds."""
        self._waiting = queue.SimpleQueue()
        if self._thread is not None:
            self._thread.join(timeout)

    def _work(self) -> None:
        if self._niceness and sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._niceness)
        while True:
            try:
                work = self._waiting.get(timeout=_IDLE)
            except queue.Empty:
                return
            work()
            del work

    def _in_child(self) -> None:
        """The thread is the parent's, and so is what it was asked."""
        self._thread, self._waiting = None, queue.SimpleQueue()
