"""Rows picked along one axis by one list of indices: MAX's `gather`, for graphs that run as steps."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_ranges, task_count

# Elements of a task.
comptime GRAIN = 32768


def _of_lines[
    dtype: DType, index_dtype: DType, //
](
    x: Address[dtype], index: Address[index_dtype], to: Address[dtype],
    lines: Int, n: Int, count: Int,
):
    """Single elements of each of `lines` lines of `n`."""

    def work(lower: Int, upper: Int) {var x, var index, var to, var n, var count}:
        for line in range(lower, upper):
            var source = x.unsafe_offset(line * n)
            var sink = to.unsafe_offset(line * count)
            for j in range(count):
                var at = Int(index[unsafe_offset=j])
                sink[unsafe_offset=j] = source[unsafe_offset = at + n if at < 0 else at]

    in_ranges(work, lines, task_count(lines, lines * count, GRAIN // 4))


@register("tmb_take")
struct Take:
    """`output[i, j, k] = x[i, index[j], k]` of `[outer, n, inner]` and `[count]`; negative indices
    count from the end, and one out of range raises."""

    @staticmethod
    def execute[
        dtype: DType, index_dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        index: InputTensor[dtype=index_dtype, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own gather"
        var outer = x.dim_size[0]()
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        var count = index.dim_size[0]()
        var xp = untracked(x.unsafe_ptr())
        var ip = untracked(index.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        for j in range(count):
            var at = Int(ip[unsafe_offset=j])
            if at < -n or at >= n:
                raise Error("index ", at, " is out of bounds for a dimension of size ", n)
        var rows = outer * count
        if rows * inner == 0:
            return
        if inner == 1 and outer > 1:
            _of_lines(xp, ip, op, outer, n, count)
            return
        var each = max(1, GRAIN // inner)

        def work(lower: Int, upper: Int) {var xp, var ip, var op, var n, var inner, var count}:
            comptime width = simd_width_of[dtype]()
            for row in range(lower, upper):
                var at = Int(ip[unsafe_offset=row % count])
                at = at + n if at < 0 else at
                var source = xp.unsafe_offset((row // count * n + at) * inner)
                var to = op.unsafe_offset(row * inner)
                var k = 0
                while k + width <= inner:
                    to.unsafe_store(k, source.unsafe_load[width=width](k))
                    k += width
                while k < inner:
                    to[unsafe_offset=k] = source[unsafe_offset=k]
                    k += 1

        in_ranges(work, rows, ceildiv(rows, each))
