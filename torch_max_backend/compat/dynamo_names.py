"""Spares Dynamo the names that nobody reads.

For each operator that it traces, Dynamo (2.11 to 2.15) writes down the function that the line is
in, for two logs that are nearly always off. For the name it takes the whole source file apart, in
Python: of GPT-2's first call this was 0.2 CPU s.
"""

from __future__ import annotations

import logging
from typing import Any

from torch._dynamo import symbolic_convert

_LOGS = ("trace_call_log", "trace_source_log")


def leave_out() -> None:
    """Leave the names out where both logs are off; once, or nothing if this torch has other
    names for all that."""
    theirs = getattr(symbolic_convert, "get_funcname", None)
    logs: list[Any] = [getattr(symbolic_convert, name, None) for name in _LOGS]
    if theirs is None or None in logs or getattr(theirs, "of_max_backend", False):
        return

    def get_funcname(filename: str, lineno: int) -> str | None:
        read = any(log.isEnabledFor(logging.DEBUG) for log in logs)
        return theirs(filename, lineno) if read else None

    get_funcname.of_max_backend = True  # type: ignore[attr-defined]
    symbolic_convert.get_funcname = get_funcname


__all__ = ["leave_out"]
