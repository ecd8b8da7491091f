"""Elements picked along one axis."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv

from ..core.indices import check_range
from ..core.memory import untracked
from ..core.team import in_ranges

# Elements of a task.
comptime GRAIN = 16384


@register("tmb_gather")
struct Gather:
    """`output[i, j, k] = x[i, index[i, j, k], k]` for `axis` 1, and alike for others; an index
    out of range raises."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, axis: Int, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=rank, ...],
        index: InputTensor[dtype=DType.int64, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "a GPU cannot raise"
        comptime last = rank - 1
        var count = index.size()
        if count == 0:
            return
        var ip = untracked(index.unsafe_ptr())
        check_range(ip, count, 0, x.dim_size[axis]())
        var xp = untracked(x.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var n = index.dim_size[last]()
        var step = 1
        comptime for d in range(axis + 1, rank):
            step *= x.dim_size[d]()
        var rows = count // n
        var each = max(1, GRAIN // n)

        def work(lower: Int, upper: Int) {
            var x, var index, var xp, var ip, var op, var n, var step
        }:
            for row in range(lower, upper):
                var base = 0
                var rest = row
                var stride = x.dim_size[last]()
                comptime for d in range(last - 1, -1, -1):
                    comptime if d != axis:
                        base += rest % index.dim_size[d]() * stride
                    rest //= index.dim_size[d]()
                    stride *= x.dim_size[d]()
                var source = xp.unsafe_offset(base)
                var places = ip.unsafe_offset(row * n)
                var to = op.unsafe_offset(row * n)
                for j in range(n):
                    var at = Int(places[unsafe_offset=j]) * step
                    comptime if axis != last:
                        at += j
                    to[unsafe_offset=j] = source[unsafe_offset=at]

        in_ranges(work, rows, ceildiv(rows, each))
