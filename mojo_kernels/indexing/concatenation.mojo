"""Tensors one after the other along an axis."""

from extensibility import OutputTensor, register
from extensibility import _FusedInputVariadicTensors as FusedInputVariadicTensors
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.index import IndexList

from ..core.fused import load, store
from ..core.team import in_ranges

# Elements of a task.
comptime GRAIN = 65536


@register("tmb_concat")
struct Concat:
    """Joins tensors along `axis`.

    What computes them becomes a part of this kernel."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, axis: Int, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        xs: FusedInputVariadicTensors[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernel"
        comptime width = 2 * simd_width_of[dtype]()
        # Where each begins along the axis, and the number of its rows before it.
        var start = IndexList[xs.size](0)
        var rows = IndexList[xs.size](0)
        var columns = 1
        var total = 0
        var sofar = 0
        comptime for i in range(xs.size):
            start[i] = sofar
            sofar += xs[i].dim_size[axis]()
            var count = 1
            comptime for d in range(rank - 1):
                count *= xs[i].dim_size[d]()
            total += count
            rows[i] = total
            columns = max(columns, xs[i].dim_size[rank - 1]())
        var each = max(1, GRAIN // columns)

        def work(lower: Int, upper: Int) {var xs, var output, var start, var rows}:
            var before = 0
            comptime for i in range(xs.size):
                for row in range(max(lower, before) - before, min(upper, rows[i]) - before):
                    var at = IndexList[rank](0)
                    var rest = row
                    comptime for d in range(rank - 2, -1, -1):
                        at[d] = rest % xs[i].dim_size[d]()
                        rest //= xs[i].dim_size[d]()

                    @always_inline
                    def copy[w: Int](j: Int) {var xs, var output, var at, var start}:
                        var source = at
                        source[rank - 1] = j
                        var sink = source
                        sink[axis] += start[i]
                        store(output, sink, load[w](xs[i], source))

                    var j = 0
                    while j + width <= xs[i].dim_size[rank - 1]():
                        copy[width](j)
                        j += width
                    while j < xs[i].dim_size[rank - 1]():
                        copy[1](j)
                        j += 1
                before = rows[i]

        in_ranges(work, total, ceildiv(total, each))
