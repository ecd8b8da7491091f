"""Overlapping frames of lines, added up."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.algorithm import elementwise, sync_parallelize
from max.gpu.host import DeviceContext
from max.runtime.asyncrt import parallelism_level
from std.math import ceildiv
from std.memory import Pointer
from std.sys import simd_width_of

comptime Address[dtype: DType] = Pointer[Scalar[dtype], MutAnyOrigin]

# Elements that a task should have at least.
comptime GRAIN = 32768


def _add_up[
    dtype: DType, //
](
    frames: Address[dtype],
    count: Int,
    size: Int,
    step: Int,
    line: Address[dtype],
    start: Int,
    end: Int,
):
    """Fills a part of a line: frame after frame, so that the order of additions
    does not depend on the parts."""
    comptime width = simd_width_of[dtype]()
    for t in range(start, end):
        line[unsafe_offset=t] = 0
    var first = 0
    if start >= size:
        first = (start - size) // step + 1
    for f in range(first, min(count, (end - 1) // step + 1)):
        var at = f * step
        var t = max(start, at)
        var stop = min(end, at + size)
        var frame = frames.unsafe_offset(f * size)
        while t + width <= stop:
            var sum = line.unsafe_load[width=width](t)
            line.unsafe_store(t, sum + frame.unsafe_load[width=width](t - at))
            t += width
        while t < stop:
            line[unsafe_offset=t] += frame[unsafe_offset = t - at]
            t += 1


@register("tmb_overlap_add")
struct OverlapAdd:
    """Frames `[lines, count, size]`, each `step` behind the one before, added up
    in lines `[lines, n]`; where there are none, 0."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        step: Int64,
        ctx: DeviceContext,
    ) raises:
        var lines = output.dim_size[0]()
        var n = output.dim_size[1]()
        var count = x.dim_size[1]()
        var size = x.dim_size[2]()
        var stride = Int(step)
        if x.dim_size[0]() != lines:
            raise Error("frames of other lines than the result has")
        if stride < 1 or (count > 0 and (count - 1) * stride + size > n):
            raise Error("the frames do not fit into the result")
        if lines * n == 0:
            return
        var from_ = x.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var to = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        comptime if target == "cpu":
            var work = n + count * size
            var tasks = min(parallelism_level(None), lines * work // GRAIN)
            # Parts of a line, where there are fewer lines than threads.
            var parts = max(1, min(ceildiv(tasks, lines), n))
            var chunk = ceildiv(n, parts)
            tasks = max(1, min(tasks, lines * parts))
            var share = ceildiv(lines * parts, tasks)

            def some(
                task: Int,
            ) {
                var from_,
                var to,
                var lines,
                var n,
                var count,
                var size,
                var stride,
                var parts,
                var chunk,
                var share,
            }:
                for i in range(task * share, min(lines * parts, (task + 1) * share)):
                    var line = i // parts
                    var start = i % parts * chunk
                    var end = min(n, start + chunk)
                    if start < end:
                        _add_up(
                            from_.unsafe_offset(line * count * size),
                            count,
                            size,
                            stride,
                            to.unsafe_offset(line * n),
                            start,
                            end,
                        )

            sync_parallelize(some, tasks)
        else:

            @always_inline
            def one[
                width: Int, alignment: Int = 1
            ](
                idx: Coord[...]
            ) {var from_, var to, var n, var count, var size, var stride} -> None:
                var i = Int(idx[0].value())
                var t = i % n
                var frames = from_.unsafe_offset(i // n * count * size)
                var first = 0
                if t >= size:
                    first = (t - size) // stride + 1
                var sum = Scalar[dtype](0)
                for f in range(first, min(count, t // stride + 1)):
                    sum += frames[unsafe_offset = f * size + t - f * stride]
                to[unsafe_offset=i] = sum

            elementwise[simd_width=1, target=target](one, Coord(lines * n), ctx)
