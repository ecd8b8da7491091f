"""A process that is interrupted while a library of C++ works on in threads of its own."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable

from torch_max_backend.process.fork_safety import end_without_destructors


def end_before(done: Callable[[], bool]) -> None:
    """Have this process end without waiting for the threads that work until ``done``.

    Where nothing catches the interrupt, it ends after the functions of :mod:`atexit`: Python would
    take itself apart then, and a thread that asks for its lock meanwhile ends in ``terminate``.
    """
    end_without_destructors()

    def end() -> None:
        if done() or getattr(sys, "last_type", None) is not KeyboardInterrupt:
            return
        atexit.unregister(end)
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        # As Python does it, so that a shell sees an interrupted program.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    atexit.register(end)  # The last one to be registered runs first.
