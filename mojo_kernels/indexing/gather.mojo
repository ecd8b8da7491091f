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
        dtype: DType, rank: Int, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=rank, ...],
        index: InputTensor[dtype=DType.int64, rank=rank, ...],
        axis: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "a GPU cannot raise"
        comptime last = rank - 1
        var along = Int(axis)
        var count = index.size()
        if count == 0:
            return
        var ip = untracked(index.unsafe_ptr())
        check_range(ip, count, 0, x.shape()[along])
        var xp = untracked(x.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var n = index.dim_size[last]()
        var step = 1
        for d in range(along + 1, rank):
            step *= x.shape()[d]
        var rows = count // n
        # Lines of few elements wait for memory.
        var each = max(1, GRAIN // (n + 8))

        def work(lower: Int, upper: Int) {
            var x, var index, var xp, var ip, var op, var n, var step, var along
        }:
            # The position of a line among the others, and where it begins in `x`.
            var at = Array[Int, rank](fill=0)
            var strides = Array[Int, rank](fill=0)
            var base = 0
            var rest = lower
            var stride = x.dim_size[last]()
            comptime for d in range(last - 1, -1, -1):
                at[d] = rest % index.dim_size[d]()
                if d != along:
                    strides[d] = stride
                base += at[d] * strides[d]
                rest //= index.dim_size[d]()
                stride *= x.dim_size[d]()
            # Neighbours are picked beside each other, but along the last dim.
            var beside = 0 if along == last else 1
            for row in range(lower, upper):
                var source = xp.unsafe_offset(base)
                var places = ip.unsafe_offset(row * n)
                var to = op.unsafe_offset(row * n)
                for j in range(n):
                    var from_ = Int(places[unsafe_offset=j]) * step + j * beside
                    to[unsafe_offset=j] = source[unsafe_offset=from_]
                var carries = True
                comptime for d in range(last - 1, -1, -1):
                    if carries:
                        at[d] += 1
                        base += strides[d]
                        carries = at[d] == index.dim_size[d]()
                        if carries:
                            base -= at[d] * strides[d]
                            at[d] = 0

        in_ranges(work, rows, ceildiv(rows, each))
