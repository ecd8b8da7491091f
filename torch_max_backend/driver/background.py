"""Serving a graph with eager PyTorch until its compiled model is ready."""

from __future__ import annotations

import atexit
import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

from torch_max_backend.engines.max.worker import end_workers, ending
from torch_max_backend.log import get_logger

log = get_logger("background")

Function = Callable[[list[Any]], list[Any]]

THREAD = "torch_max_backend-compile"
# What the compiles that failed in this process said.
failures: list[str] = []


def wait_for_all() -> None:
    """Wait until no graph of this process is being compiled in the background."""
    while running := _threads():
        for thread in running:
            thread.join()


def _threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == THREAD]


# Longer than any call into MAX that such a thread makes, but for a compile, which is elsewhere.
_LONGEST_END = 2.0


@atexit.register
def _end() -> None:
    """End the compiles of this process. A thread that is still inside MAX when the interpreter goes
    is torn out of C++ code, which aborts the process."""
    end_workers()
    until = time.monotonic() + _LONGEST_END
    running = _threads()
    for thread in running:
        # Takes effect when the thread next runs Python code.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
        )
    for thread in running:
        thread.join(max(0.0, until - time.monotonic()))


class Background:
    """A graph that is compiled by a thread while ``eager`` answers calls.

    Each call is answered whole by one of the two; the first one after the compile is done, and all
    later ones, by the compiled model. If compiling fails, one warning says so and eager goes on.

    Args:
        eager: Runs the traced graph; called with one list of arguments, which it may empty.
        compile: Returns the compiled function; called in a thread.
    """

    def __init__(self, eager: Function, compile: Callable[[], Function]) -> None:
        # An attribute of the instance: AOTAutograd's wrappers copy __dict__ to learn of it.
        self._boxed_call = True
        self._serve: Function = eager
        self._done = threading.Event()
        thread = threading.Thread(target=self._work, args=(compile,), name=THREAD, daemon=True)
        thread.start()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        return self._serve(arguments)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until compiling has ended; False if it has not within ``timeout`` seconds."""
        return self._done.wait(timeout)

    def _work(self, compile: Callable[[], Function]) -> None:
        try:
            self._serve = compile()
        except Exception as e:
            if ending():
                return  # nobody is served any more
            log.warning("Compiling in the background failed; eager PyTorch goes on serving: %s", e)
            failures.append(str(e))
        finally:
            self._done.set()
