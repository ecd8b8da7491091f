"""Normalization of rows: layer norm, and group norm with a row a group."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import sqrt
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_ranges, task_count

comptime GRAIN = 16384
# Numbers of a row that are added up before they go to its sum.
comptime BLOCK = 4096


@always_inline
def _total[
    dtype: DType, //, squares: Bool
](row: Address[dtype], columns: Int, center: Scalar[dtype]) -> Scalar[dtype]:
    """The sum of a row less `center`, or of its squares: by blocks, so that the
    error does not grow with the row, in several registers at a time."""
    comptime width = simd_width_of[dtype]()
    comptime several = 4
    var total = Scalar[dtype](0)
    var j = 0
    while j < columns:
        var end = min(j + BLOCK, columns)
        var sums = Array[SIMD[dtype, width], several](fill=0)
        while j + several * width <= end:
            comptime for i in range(several):
                var v = row.unsafe_load[width=width](j + i * width) - center
                comptime if squares:
                    sums[i] = v.fma(v, sums[i])
                else:
                    sums[i] += v
            j += several * width
        while j + width <= end:
            var v = row.unsafe_load[width=width](j) - center
            comptime if squares:
                sums[0] = v.fma(v, sums[0])
            else:
                sums[0] += v
            j += width
        var rest = Scalar[dtype](0)
        while j < end:
            var v = row[unsafe_offset=j] - center
            comptime if squares:
                rest += v * v
            else:
                rest += v
            j += 1
        total += rest + (
            (sums[0] + sums[1]) + (sums[2] + sums[3])
        ).reduce_add()
    return total


@always_inline
def _statistics[
    dtype: DType
](row: Address[dtype], columns: Int) -> Tuple[Scalar[dtype], Scalar[dtype]]:
    """Mean and variance, in two passes."""
    var count = Scalar[dtype](columns)
    var mean = _total[False](row, columns, 0) / count
    return (mean, _total[True](row, columns, mean) / count)


@register("tmb_normalize")
struct Normalize:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` of each row, with its
    mean and reciprocal standard deviation.

    Row `r` takes the weights from `r % groups` times its share of them on, one
    for each `repeat` columns. Empty weights and biases are none.

    `x` and the result may have any distance of rows."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        means: OutputTensor[dtype=dtype, rank=1, ...],
        deviations: OutputTensor[dtype=dtype, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        weight: InputTensor[dtype=dtype, rank=1, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        groups: Int64,
        repeat: Int64,
        eps: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernel"
        comptime assert dtype.is_floating_point(), "float only"
        var rows = x.dim_size[0]()
        var columns = x.dim_size[1]()
        var row_x = x.stride_length[0]()
        var row_y = output.stride_length[0]()
        if rows * columns == 0:
            return
        var xp = untracked(x.unsafe_ptr())
        var yp = untracked(output.unsafe_ptr())
        var wp = untracked(weight.unsafe_ptr())
        var bp = untracked(bias.unsafe_ptr())
        var mp = untracked(means.unsafe_ptr())
        var dp = untracked(deviations.unsafe_ptr())
        var weighted = weight.dim_size[0]() != 0
        var biased = bias.dim_size[0]() != 0
        var parts = Int(groups)
        var run = Int(repeat)
        var share = columns // run
        var added = eps.cast[dtype]()
        var tasks = task_count(rows, rows * columns, GRAIN)

        def work(lower: Int, upper: Int) {
            var xp, var yp, var wp, var bp, var mp, var dp, var weighted, var biased, var parts,
            var run, var share, var added, var columns, var row_x, var row_y
        }:
            comptime width = simd_width_of[dtype]()
            for r in range(lower, upper):
                var row = xp.unsafe_offset(r * row_x)
                var to = yp.unsafe_offset(r * row_y)
                var mean, variance = _statistics(row, columns)
                var scale = 1 / sqrt(variance + added)
                mp[unsafe_offset=r] = mean
                dp[unsafe_offset=r] = scale
                var first = r % parts * share
                if run == 1:
                    var j = 0
                    while j + width <= columns:
                        var v = (row.unsafe_load[width=width](j) - mean) * scale
                        if weighted:
                            v *= wp.unsafe_load[width=width](first + j)
                        if biased:
                            v += bp.unsafe_load[width=width](first + j)
                        to.unsafe_store[width=width](j, v)
                        j += width
                    while j < columns:
                        var v = (row[unsafe_offset=j] - mean) * scale
                        if weighted:
                            v *= wp[unsafe_offset = first + j]
                        if biased:
                            v += bp[unsafe_offset = first + j]
                        to[unsafe_offset=j] = v
                        j += 1
                    continue
                for channel in range(share):
                    var factor = Scalar[dtype](1)
                    var addend = Scalar[dtype](0)
                    if weighted:
                        factor = wp[unsafe_offset = first + channel]
                    if biased:
                        addend = bp[unsafe_offset = first + channel]
                    var j = channel * run
                    var end = j + run
                    while j + width <= end:
                        var v = (row.unsafe_load[width=width](j) - mean) * scale
                        to.unsafe_store[width=width](j, v * factor + addend)
                        j += width
                    while j < end:
                        var v = (row[unsafe_offset=j] - mean) * scale
                        to[unsafe_offset=j] = v * factor + addend
                        j += 1

        in_ranges(work, rows, tasks)
