"""Counting in parts, each of which may run at the same time as the others."""

from std.math import ceildiv
from std.memory import Pointer

from .memory import untracked
from .team import sync_parallelize


@always_inline
def counts_before[
    Count: def(Int, Int) -> Int, //
](count: Count, units: Int, part: Int) -> List[Int]:
    """The sums of `count(lower, upper)` before each part of so many of the numbers below `units`,
    and at last that of all."""
    var parts = ceildiv(units, part)
    var before = List[Int](length=parts + 1, fill=0)
    var bp = untracked(before.unsafe_ptr())
    var body = Pointer(to=count).unsafe_origin_cast[UntrackedOrigin[mut=False]]()

    def work(number: Int) {var body, var bp, var units, var part}:
        var found = body[](number * part, min(units, (number + 1) * part))
        bp[unsafe_offset=number + 1] = found

    sync_parallelize(work, parts)
    for number in range(parts):
        before[number + 1] += before[number]
    return before^
