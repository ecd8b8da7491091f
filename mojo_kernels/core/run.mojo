"""The loop over the rows of a table."""

from std.memory import Pointer
from std.time import perf_counter_ns

comptime Words = Pointer[Int64, MutAnyOrigin]
comptime Shell = def(Words, Words) thin abi("C") -> Int64
# Nanoseconds that a loop may keep Python from its signals, such as Ctrl-C.
comptime PAUSES = 100_000_000


@always_inline
def _call(row: Words, context: Words) -> Int64:
    return row.unsafe_bitcast[Shell]()[](row, context)


@always_inline
def _words(address: Int64) -> Words:
    var word = Int(address)
    return Pointer(to=word).unsafe_bitcast[Words]()[]


@fieldwise_init
struct _At(TrivialRegisterPassable):
    """A row of a table.

    Fields:
        word: Its first word.
        number: Its number.
    """

    var word: Int
    var number: Int

    @always_inline
    def next(self, row: Words) -> Self:
        """The row behind it."""
        return Self(self.word + Int(row[unsafe_offset=1]), self.number + 1)

    @always_inline
    def jumped(self, row: Words) -> Self:
        """Where a row leads that is a jump: on, if it has a flag and that is true."""
        var flag = row[unsafe_offset=2]
        if flag != 0 and _words(flag).unsafe_bitcast[UInt8]()[] != 0:
            return self.next(row)
        return Self(Int(row[unsafe_offset=3]), Int(row[unsafe_offset=4]))


@always_inline
def run_rows[*, timed: Bool](table: Words, rows: Int64, context: Words, ticks: Words) -> Int64:
    """Calls each row's shell in order, or goes where a row without one leads.

    Parameters:
        timed: Whether `ticks` are written.

    Args:
        table: The rows.
        rows: How many there are.
        context: Of five words, what shells take; the last two are zeros, or where a loop paused.
        ticks: Of each row, to which the nanoseconds that it took are added.

    Returns:
        -1; the number of the row that failed; or -2 if a loop has run for long: Python is to look
        at its signals, and to call again, which goes on with that loop.
    """
    # Where a loop paused, if one did.
    var at = _At(Int(context[unsafe_offset=3]), Int(context[unsafe_offset=4]))
    context[unsafe_offset=3] = 0
    context[unsafe_offset=4] = 0
    var since = 0
    while at.number < Int(rows):
        var row = table.unsafe_offset(at.word)
        if row[unsafe_offset=0] == 0:
            var to = at.jumped(row)
            if to.number < at.number:
                var now = perf_counter_ns()
                if since == 0:
                    since = now
                elif now - since > PAUSES:
                    context[unsafe_offset=3] = Int64(to.word)
                    context[unsafe_offset=4] = Int64(to.number)
                    return -2
            at = to
            continue
        var begin = 0
        comptime if timed:
            begin = perf_counter_ns()
        var failed = _call(row, context) != 0
        comptime if timed:
            ticks[unsafe_offset=at.number] += Int64(perf_counter_ns() - begin)
        if failed:
            return Int64(at.number)
        at = at.next(row)
    return -1


@always_inline
def run_block(block: Words) -> Int64:
    """`run_rows` of the table, rows and context that `block` holds: one argument costs a call from
    Python less than three."""
    var context = _words(block[unsafe_offset=2])
    return run_rows[timed=False](
        _words(block[unsafe_offset=0]), block[unsafe_offset=1], context, context
    )
