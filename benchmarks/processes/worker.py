"""A process of a benchmark that answers questions: both are lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any


class Worker:
    """``python -m MODULE ARGUMENTS``, which calls :func:`serve`."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer, or ``failed`` and why: what the process raised, or that it ended."""
        asked, answers = self._process.stdin, self._process.stdout
        assert asked is not None
        assert answers is not None
        try:
            print(json.dumps(question), file=asked, flush=True)
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        return json.loads(line) if line else {"failed": "the process ended"}

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate()


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer all questions of the process that made this one."""
    answers = os.fdopen(os.dup(1), "w")
    # What frameworks print is no answer.
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as e:
            found = {"failed": f"{type(e).__name__}: {e}".splitlines()[0][:200]}
        print(json.dumps(found), file=answers, flush=True)
