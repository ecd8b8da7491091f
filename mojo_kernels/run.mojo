"""The loop over the rows of a table."""

from std.memory import Pointer
from std.time import perf_counter_ns

comptime Words = Pointer[Int64, MutAnyOrigin]
comptime Shell = def(Words, Words) thin abi("C") -> Int64


@always_inline
def _call(row: Words, context: Words) -> Int64:
    return row.unsafe_bitcast[Shell]()[](row, context)


@always_inline
def _words(address: Int64) -> Words:
    var word = Int(address)
    return Pointer(to=word).unsafe_bitcast[Words]()[]


@export("tmb_run")
def tmb_run(table: Words, rows: Int64, context: Words) abi("C") -> Int64:
    """Call each row's shell in order; -1, or the number of the row that failed."""
    var row = table
    for i in range(Int(rows)):
        if _call(row, context) != 0:
            return Int64(i)
        row = row.unsafe_offset(Int(row[unsafe_offset=1]))
    return -1


@export("tmb_run_block")
def tmb_run_block(block: Words) abi("C") -> Int64:
    """As `tmb_run` of the table, rows and context that `block` holds: one argument costs a call from
    Python less than three."""
    return tmb_run(
        _words(block[unsafe_offset=0]), block[unsafe_offset=1], _words(block[unsafe_offset=2])
    )


@export("tmb_run_timed")
def tmb_run_timed(table: Words, rows: Int64, context: Words, ticks: Words) abi("C") -> Int64:
    """As `tmb_run`; stores the nanoseconds that each row took."""
    var row = table
    for i in range(Int(rows)):
        var begin = perf_counter_ns()
        var failed = _call(row, context) != 0
        ticks[unsafe_offset=i] = Int64(perf_counter_ns() - begin)
        if failed:
            return Int64(i)
        row = row.unsafe_offset(Int(row[unsafe_offset=1]))
    return -1
