"""A function of each position of a tensor: MAX's loop inside a MAX graph and on GPUs, one of our own
in a step library."""

from extensibility import OutputTensor
from extensibility import foreach as foreach_in_max
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.index import IndexList

from .fused import store
from .team import STEPS, in_ranges, task_count

# Elements of a task.
comptime GRAIN = 8192


@always_inline
def foreach[
    dtype: DType,
    rank: Int,
    //,
    Function: (
        def[width: Int](Coord[...]) -> SIMD[dtype, width]
    ) & RegisterPassable & ImplicitlyCopyable,
    *,
    target: StaticString,
](
    function: Function,
    output: OutputTensor[dtype=dtype, rank=rank, ...],
    ctx: DeviceContext,
) raises:
    """Makes `output` the values of `function[width](position)`, of `width` elements from a position
    on along the last axis."""
    comptime if not STEPS or target != "cpu":
        foreach_in_max[target=target](function, output, ctx)
    elif rank == 0:
        store(output, IndexList[rank](0), function[1](Coord(IndexList[rank](0))))
    else:
        comptime last = rank - 1
        comptime width = simd_width_of[dtype]()
        var shape = output.shape()
        var n = shape[last]
        var lines = 1
        comptime for i in range(last):
            lines *= shape[i]
        if lines * n == 0:
            return
        # Long lines are cut, short ones put together.
        var tasks = task_count(lines * n, lines * n, GRAIN)
        var parts = 1 if lines >= tasks else ceildiv(tasks, lines)
        var length = ceildiv(ceildiv(n, parts), width) * width
        parts = ceildiv(n, length)
        var units = lines * parts

        def work(lower: Int, upper: Int) {
            var function, var output, var shape, var n, var parts, var length
        }:
            for unit in range(lower, upper):
                var at = IndexList[rank](0)
                var rest = unit // parts
                comptime for i in range(last - 1, -1, -1):
                    at[i] = rest % shape[i]
                    rest //= shape[i]
                var j = unit % parts * length
                var end = min(n, j + length)
                while j + width <= end:
                    at[last] = j
                    store(output, at, function[width](Coord(at)))
                    j += width
                while j < end:
                    at[last] = j
                    store(output, at, function[1](Coord(at)))
                    j += 1

        in_ranges(work, units, tasks)
