"""A line on stderr while a compile takes long."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from torch_max_backend.log import get_logger

_SHOW_AFTER = 2.0
_REFRESH = 1.0


def _wanted() -> bool:
    return sys.stderr.isatty() and get_logger("compile").isEnabledFor(logging.WARNING)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """While the body runs longer than two seconds, keep one line on stderr that says so.

    Silent where stderr is no terminal, or the logger ``torch_max_backend.compile`` hides warnings.
    """
    if not _wanted():
        yield
        return
    done = threading.Event()
    start = time.perf_counter()

    def show() -> None:
        wait = _SHOW_AFTER
        while not done.wait(wait):
            wait = _REFRESH
            elapsed = time.perf_counter() - start
            sys.stderr.write(f"\rtorch_max_backend: compiling {what}, {elapsed:.0f} s so far ")
            sys.stderr.flush()

    thread = threading.Thread(target=show, name="torch_max_backend-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        elapsed = time.perf_counter() - start
        if elapsed >= _SHOW_AFTER:
            sys.stderr.write(f"\rtorch_max_backend: compiled {what} in {elapsed:.1f} s      \n")
            sys.stderr.flush()
