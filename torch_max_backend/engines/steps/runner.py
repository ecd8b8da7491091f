"""The loop over a table's rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from torch_max_backend.engines.steps.libraries import exported
from torch_max_backend.engines.steps.texts import Text

# What that returns when a loop has run for long: Python looks at its signals between two calls, and
# the next goes on where this one was.
PAUSED = -2

_MODULE = "core.run"
# `Words` has a name of its own here: texts of programs, which may share a library, import theirs.
RUN = Text(
    "run",
    f"""\
from kernels.{_MODULE} import Words as RunWords, run_block, run_rows


@export("tmb_run")
def tmb_run(table: RunWords, rows: Int64, context: RunWords) abi("C") -> Int64:
    return run_rows[timed=False](table, rows, context, context)


@export("tmb_run_block")
def tmb_run_block(block: RunWords) abi("C") -> Int64:
    return run_block(block)


@export("tmb_run_timed")
def tmb_run_timed(
    table: RunWords, rows: Int64, context: RunWords, ticks: RunWords
) abi("C") -> Int64:
    return run_rows[timed=True](table, rows, context, ticks)
""",
    {
        "tmb_run": "the loop over the rows of a table",
        "tmb_run_block": "the same, of what a block holds",
        "tmb_run_timed": "the same, with the time that each row took",
    },
    [_MODULE],
)


@cache
def runner(*, timed: bool = False) -> Callable[..., int]:
    """The loop over a table's rows, called without Python's lock.

    Returns:
        ``run(table, rows, context)``: the address of the first row, how many there are, and the
        address of the context, five int64. It returns -1, the number of the row that failed, or
        ``PAUSED``. With ``timed`` it takes as well where it stores the nanoseconds of each row, an
        int64 each.

    Raises:
        LibraryError: It could not be built or loaded.
    """
    found = exported(RUN)
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * (4 if timed else 3))
    return kind(found["tmb_run_timed" if timed else "tmb_run"])


@cache
def block_runner() -> Callable[[int], int]:
    """The same loop, for calls that have no time to lose.

    Returns:
        ``run(block)``: the address of three int64, what ``runner()`` takes.

    Raises:
        LibraryError: It could not be built or loaded.
    """
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(exported(RUN)["tmb_run_block"])
