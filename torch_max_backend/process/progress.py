"""A line on stderr while compiles take long."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch_max_backend.log import get_logger
from torch_max_backend.process import fork_safety

_SHOW_AFTER = 2.0
_REFRESH = 1.0


@dataclass(eq=False)
class _Compile:
    """A compile that is under way."""

    what: str
    operators: int | None
    start: float


def _wanted() -> bool:
    return sys.stderr.isatty() and get_logger("compile").isEnabledFor(logging.WARNING)


class _Line:
    """The one line of the process, which all compiles share."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._compiles: list[_Compile] = []
        self._thread: threading.Thread | None = None
        self._width = 0

    def add(self, compile: _Compile) -> None:
        with self._changed:
            self._compiles.append(compile)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="torch_max_backend-progress", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def remove(self, compile: _Compile) -> None:
        with self._changed:
            self._compiles.remove(compile)
            elapsed = time.perf_counter() - compile.start
            if elapsed >= _SHOW_AFTER:
                self._write(f"compiled {compile.what} in {elapsed:.1f} s")
                sys.stderr.write("\n")
                sys.stderr.flush()
                self._width = 0
            self._changed.notify()

    def _run(self) -> None:
        with self._changed:
            while self._compiles:
                elapsed = time.perf_counter() - self._compiles[0].start
                if elapsed >= _SHOW_AFTER:
                    self._write(f"compiling {self._all()}, {elapsed:.0f} s so far")
                self._changed.wait(max(_REFRESH, _SHOW_AFTER - elapsed))
            if self._width:
                # Only compiles too short to be shown were left: take the line back.
                sys.stderr.write("\r" + " " * self._width + "\r")
                sys.stderr.flush()
                self._width = 0
            self._thread = None

    def _all(self) -> str:
        if len(self._compiles) == 1:
            return self._compiles[0].what
        known = [c.operators for c in self._compiles]
        total = sum(n for n in known if n is not None)
        return f"{len(known)} graphs" + (f" ({total} operators)" if None not in known else "")

    def _write(self, text: str) -> None:
        """Write over what the line says."""
        text = f"torch_max_backend: {text}"
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)


_line = _Line()


@fork_safety.in_child
def _in_child() -> None:
    """What is compiled is the parent's, and its thread that tells of it is not here."""
    global _line
    _line = _Line()


@contextmanager
def progress(what: str, operators: int | None = None) -> Iterator[None]:
    """While the body runs longer than two seconds, keep one line on stderr that says so.

    Bodies that run at once share the line. Silent where stderr is no terminal, or the logger
    ``torch_max_backend.compile`` hides warnings.

    Args:
        what: What is compiled.
        operators: How many operators that has, if known.
    """
    if not _wanted():
        yield
        return
    compile = _Compile(what, operators, time.perf_counter())
    _line.add(compile)
    try:
        yield
    finally:
        _line.remove(compile)
