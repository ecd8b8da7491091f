"""One thread a line: the loop that scans and sorts share."""

from layout import Coord
from max.algorithm import elementwise
from max.gpu.host import DeviceContext
from std.math import ceildiv

from .team import sync_parallelize, task_count

comptime GRAIN = 32768


@always_inline
def each_line[
    Work: (def(Int) -> None) & RegisterPassable & ImplicitlyCopyable,
    //,
    target: StaticString,
](work: Work, lines: Int, cost: Int, ctx: DeviceContext) raises:
    """Calls `work` with each of `lines` numbers, about `cost` steps a call."""
    comptime if target == "cpu":
        var tasks = task_count(lines, lines * cost, GRAIN)
        var chunk = ceildiv(lines, tasks)

        def some(task: Int) {var work, var lines, var chunk}:
            for line in range(task * chunk, min(lines, (task + 1) * chunk)):
                work(line)

        sync_parallelize(some, tasks)
    else:

        @always_inline
        def one[
            width: Int, alignment: Int = 1
        ](idx: Coord[...]) {var work} -> None:
            work(Int(idx[0].value()))

        elementwise[simd_width=1, target=target](one, Coord(lines), ctx)
