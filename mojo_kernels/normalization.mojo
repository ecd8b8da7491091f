"""Normalization of rows: layer norm, and group norm with a row a group."""

from extensibility import InputTensor, OutputTensor, register
from max.algorithm import sync_parallelize
from max.gpu.host import DeviceContext
from max.runtime.asyncrt import parallelism_level
from std.math import ceildiv, sqrt
from std.sys import simd_width_of

from .gemm import Address

comptime GRAIN = 16384


@always_inline
def _statistics[
    dtype: DType
](row: Address[dtype], columns: Int) -> Tuple[Scalar[dtype], Scalar[dtype]]:
    """Mean and variance, in two passes."""
    comptime width = simd_width_of[dtype]()
    var sums = SIMD[dtype, width](0)
    var total = Scalar[dtype](0)
    var j = 0
    while j + width <= columns:
        sums += row.unsafe_load[width=width](j)
        j += width
    while j < columns:
        total += row[unsafe_offset=j]
        j += 1
    var mean = (total + sums.reduce_add()) / Scalar[dtype](columns)
    sums = 0
    total = 0
    j = 0
    while j + width <= columns:
        var v = row.unsafe_load[width=width](j) - mean
        sums += v * v
        j += width
    while j < columns:
        var v = row[unsafe_offset=j] - mean
        total += v * v
        j += 1
    return (mean, (total + sums.reduce_add()) / Scalar[dtype](columns))


@register("tmb_normalize")
struct Normalize:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` of each row, with its
    mean and reciprocal standard deviation.

    Row `r` takes the weights from `r % groups` times its share of them on, one
    for each `repeat` columns. Empty weights and biases are none."""

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
        if rows * columns == 0:
            return
        var xp = x.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var yp = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var wp = weight.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var bp = bias.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var mp = means.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var dp = deviations.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var weighted = weight.dim_size[0]() != 0
        var biased = bias.dim_size[0]() != 0
        var parts = Int(groups)
        var run = Int(repeat)
        var share = columns // run
        var added = eps.cast[dtype]()
        var tasks = min(parallelism_level(None), rows)
        tasks = max(1, min(tasks, rows * columns // GRAIN))
        var chunk = ceildiv(rows, tasks)

        def work(
            task: Int,
        ) {
            var xp,
            var yp,
            var wp,
            var bp,
            var mp,
            var dp,
            var weighted,
            var biased,
            var parts,
            var run,
            var share,
            var added,
            var rows,
            var columns,
            var chunk,
        }:
            comptime width = simd_width_of[dtype]()
            for r in range(task * chunk, min(rows, (task + 1) * chunk)):
                var row = xp.unsafe_offset(r * columns)
                var to = yp.unsafe_offset(r * columns)
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

        sync_parallelize(work, tasks)
