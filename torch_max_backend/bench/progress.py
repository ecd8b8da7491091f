"""How far a measurement is: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time

from torch_max_backend.log import say

_WIDTH = 20


class Progress:
    """Tells on stderr of steps that take about as long as each other."""

    def __init__(self, steps: int) -> None:
        self._steps, self._done = steps, 0
        self._start = time.perf_counter()
        self._bar = sys.stderr.isatty()

    def begin(self, what: str) -> None:
        """A step begins."""
        place = f"{self._done + 1} of {self._steps}"
        if not self._bar:
            say(f"{what} ({place})")
            return
        full = _WIDTH * self._done // self._steps
        line = f"[{'#' * full}{'.' * (_WIDTH - full)}] {place}: {what}{self._left()}"
        columns = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + line[:columns].ljust(columns))
        sys.stderr.flush()

    def end(self) -> None:
        """It is over, or left out."""
        self._done += 1
        if self._bar and self._done >= self._steps:
            columns = shutil.get_terminal_size().columns - 1
            sys.stderr.write("\r" + " " * columns + "\r")
            sys.stderr.flush()

    def _left(self) -> str:
        """The time that is left if the others take as long."""
        if not self._done:
            return ""
        seconds = (time.perf_counter() - self._start) / self._done * (self._steps - self._done)
        return f", about {seconds:.0f} s left"
