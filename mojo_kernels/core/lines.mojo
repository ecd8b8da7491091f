"""One thread a line: the loop that scans and sorts share."""

from layout import Coord
from max.algorithm import elementwise
from max.gpu.host import DeviceContext

from .team import in_ranges, task_count

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

        def some(lower: Int, upper: Int) {var work}:
            for line in range(lower, upper):
                work(line)

        in_ranges(some, lines, tasks)
    else:

        @always_inline
        def one[
            width: Int, alignment: Int = 1
        ](idx: Coord[...]) {var work} -> None:
            work(Int(idx[0].value()))

        elementwise[simd_width=1, target=target](one, Coord(lines), ctx)
