"""Spares Dynamo what it does for logs that nobody reads, what it does over and over, and what it
imports to compare with.

Of the tracing of a Llama of 540 operators that was a sixth, without the texts of what code changes.
"""

from __future__ import annotations

import logging
import sys
import traceback
import types
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from torch._dynamo import config, guards, output_graph, side_effects, symbolic_convert
from torch._dynamo.variables import higher_order_ops

# Where ``TORCH_TRACE`` goes.
_TRACE = logging.getLogger("torch.__trace")
_NAMES = ("trace_call_log", "trace_source_log")
_LOCAL_MAP = "torch.distributed.tensor.experimental._func_map"


def leave_out() -> None:
    """Leave out names, times and texts where the logs of them are off, and an import; keep lines of
    tracebacks; once, or nothing of what has other names in this torch."""
    _leave_out_names()
    _leave_out_times()
    _leave_out_side_effects()
    _leave_out_local_map()
    _keep_lines()


def _leave_out_names() -> None:
    """For each operator, Dynamo (2.11 to 2.15) writes down the function that the line is in. For
    the name it takes the whole source file apart, in Python."""
    theirs = getattr(symbolic_convert, "get_funcname", None)
    logs: list[Any] = [getattr(symbolic_convert, name, None) for name in _NAMES]
    if theirs is None or None in logs or _is_ours(theirs):
        return

    def get_funcname(filename: str, lineno: int) -> str | None:
        return theirs(filename, lineno) if _read(*logs) else None

    _set(symbolic_convert, "get_funcname", get_funcname)


def _leave_out_times() -> None:
    """For each graph, Dynamo (2.11 to 2.15) empties the processor's caches and measures how long
    its guards take, 10 ms and more."""
    theirs = getattr(guards, "profile_guard_manager", None)
    log = getattr(guards, "guards_log", None)
    if theirs is None or log is None or _is_ours(theirs):
        return

    def profile_guard_manager(*arguments: Any) -> float:
        return theirs(*arguments) if _read(log) else 0.0

    _set(guards, "profile_guard_manager", profile_guard_manager)


def _leave_out_side_effects() -> None:
    """For each object that the traced code changes, Dynamo (2.12 to 2.15) writes down where, with
    the stack of the caller, once for each place."""
    owner = getattr(side_effects, "SideEffects", None)
    theirs = getattr(owner, "_format_side_effect_message", None)
    log = getattr(side_effects, "side_effects_log", None)
    if theirs is None or log is None or _is_ours(theirs):
        return

    def text(self: Any, var: Any) -> str:
        # Other policies warn of it or raise.
        read = config.side_effect_replay_policy != "info" or _read(log) or _TRACE.handlers
        return theirs(self, var) if read else ""

    _set(owner, "_format_side_effect_message", text)


def _leave_out_local_map() -> None:
    """For each function, Dynamo (2.15) asks whether it is a certain one of a module that it imports
    to know: 0.05 s, and 0.25 where transformers is imported, since what registers an operator there
    looks for its file among all modules. Nobody has the function before the module is imported."""
    owner = getattr(higher_order_ops, "LocalMapWrappedHigherOrderVariable", None)
    theirs = getattr(owner, "should_wrap_in_hop", None)
    if theirs is None or _is_ours(theirs):
        return

    def should_wrap_in_hop(value: Any) -> bool:
        return _LOCAL_MAP in sys.modules and theirs(value)

    should_wrap_in_hop.of_max_backend = True  # type: ignore[attr-defined]
    owner.should_wrap_in_hop = staticmethod(should_wrap_in_hop)  # type: ignore[union-attr]


def _keep_lines() -> None:
    """Each operator has the whole stack of the user's calls as text. Most lines of it are those of
    the operator before, and Python (3.11) parses each to underline a part."""
    if getattr(output_graph, "traceback", None) is not traceback:
        return
    kept = types.ModuleType("traceback", traceback.__doc__)
    vars(kept).update(vars(traceback), StackSummary=_Summary)
    _set(output_graph, "traceback", kept)


class _Summary(traceback.StackSummary):
    """A stack whose lines are written once, wherever else they are."""

    @classmethod
    def from_list(cls, a_list: Iterable[Any]) -> _Summary:
        # Python's makes no object of the class that it is called for.
        found = cls()
        found.extend(traceback.StackSummary.from_list(a_list))
        return found

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **how: Any) -> str:
        if how or frame_summary.locals:
            return super().format_frame_summary(frame_summary, **how)
        return _line(_Frame(frame_summary))


class _Frame:
    """A frame that equals all whose line is the same."""

    def __init__(self, frame: traceback.FrameSummary) -> None:
        self.frame = frame
        positions = (frame.end_lineno, frame.colno, frame.end_colno)
        # The text too: a notebook's cell can be another one under the same name.
        self._key = (frame.filename, frame.lineno, frame.name, *positions, frame.line)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Frame) and self._key == other._key


@lru_cache(maxsize=4096)
def _line(frame: _Frame) -> str:
    return traceback.StackSummary().format_frame_summary(frame.frame)


def _read(*logs: logging.Logger) -> bool:
    return any(log.isEnabledFor(logging.DEBUG) for log in logs)


def _is_ours(function: Any) -> bool:
    return getattr(function, "of_max_backend", False)


def _set(owner: Any, name: str, value: Any) -> None:
    value.of_max_backend = True
    setattr(owner, name, value)


__all__ = ["leave_out"]
