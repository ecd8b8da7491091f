"""Work that nobody waits for: one thread of the lowest priority does it, piece by piece."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable

from torch_max_backend.process import fork_safety

_PRIORITY = 19
_NAME = "torch_max_backend-idle"

_waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
_lock = fork_safety.lock()
_thread: threading.Thread | None = None


def later(work: Callable[[], None]) -> None:
    """Have ``work``, which raises nothing, called by the thread, once what came before is done."""
    global _thread
    _waiting.put(work)
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, name=_NAME, daemon=True)
            _thread.start()


def _work() -> None:
    # Of this thread alone, on Linux: the processes that it starts inherit it.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)
    while True:
        try:
            work = _waiting.get(timeout=1)
        except queue.Empty:
            return
        work()
        del work


@fork_safety.in_child
def _in_child() -> None:
    """The thread is the parent's, and so is what it was asked."""
    global _thread, _waiting
    _thread, _waiting = None, queue.SimpleQueue()
