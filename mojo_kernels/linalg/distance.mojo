"""Distances between rows."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import exp, log, sqrt
from std.sys import simd_width_of
from std.utils.numerics import isfinite, isnan

from ..core.lines import each_line
from ..core.memory import Address, untracked


@always_inline
def _power(value: Float64, exponent: Float64) -> Float64:
    """A power of a number that is not negative."""
    if value == 0 or not isfinite(value):
        return value
    return exp(exponent * log(value))


@always_inline
def distance[
    dtype: DType, //, kind: StaticString, lanes: Int
](a: Address[dtype], b: Address[dtype], n: Int, p: Float64) -> Scalar[dtype]:
    """The p-norm of the difference of two rows. `kind`: "zero" (how many differ), "one", "two",
    "inf" or "other"."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime if kind == "other":
        var total = Float64(0)
        for i in range(n):
            var d = a[unsafe_offset=i] - b[unsafe_offset=i]
            total += _power(abs(d).cast[DType.float64](), p)
        return _power(total, 1 / p).cast[dtype]()
    else:
        var sums = SIMD[dtype, lanes](0)
        var i = 0
        while i + lanes <= n:
            var d = a.unsafe_load[width=lanes](i) - b.unsafe_load[width=lanes](i)
            sums = _grown[kind](sums, d)
            i += lanes
        var total = sums[0]
        comptime for lane in range(1, lanes):
            comptime if kind == "inf":
                total = _grown[kind](total, sums[lane])
            else:
                total += sums[lane]
        while i < n:
            total = _grown[kind](total, a[unsafe_offset=i] - b[unsafe_offset=i])
            i += 1
        comptime if kind == "two":
            return sqrt(total)
        else:
            return total


@always_inline
def _grown[
    dtype: DType, width: SIMDLength, //, kind: StaticString
](sums: SIMD[dtype, width], d: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if kind == "zero":
        return sums + d.eq(0).select(SIMD[dtype, width](0), SIMD[dtype, width](1))
    elif kind == "one":
        return sums + abs(d)
    elif kind == "two":
        return sums + d * d
    else:
        var best = abs(d)
        # NaN stays.
        return (sums.gt(best) | isnan(sums)).select(sums, best)


@register("tmb_cdist")
struct Cdist:
    """`output[b, i, j]`: the distance of row i of `x[b]` from row j of `y[b]`."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        y: InputTensor[dtype=dtype, rank=3, ...],
        p: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime lanes = simd_width_of[dtype]() if target == "cpu" else 1
        var rows = output.dim_size[1]()
        var columns = output.dim_size[2]()
        var n = x.dim_size[2]()
        var op = untracked(output.unsafe_ptr())
        var xp = untracked(x.unsafe_ptr())
        var yp = untracked(y.unsafe_ptr())

        @always_inline
        def work(line: Int) {var op, var xp, var yp, var rows, var columns, var n, var p}:
            var others = yp.unsafe_offset(line // rows * columns * n)
            for j in range(columns):
                op[unsafe_offset=line * columns + j] = distance[kind, lanes](
                    xp.unsafe_offset(line * n), others.unsafe_offset(j * n), n, p
                )

        each_line[target=target](work, output.dim_size[0]() * rows, columns * n, ctx)


@register("tmb_pdist")
struct Pdist:
    """The distances of each row of `x` from those behind it, one after the other."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        p: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime lanes = simd_width_of[dtype]() if target == "cpu" else 1
        var rows = x.dim_size[0]()
        var n = x.dim_size[1]()
        if rows < 2:
            return
        var op = untracked(output.unsafe_ptr())
        var xp = untracked(x.unsafe_ptr())

        @always_inline
        def work(pair: Int) {var op, var xp, var rows, var n, var p}:
            # A long and a short line together, so that each pair costs the same.
            for side in range(2):
                var i = pair if side == 0 else rows - 1 - pair
                if side == 1 and i == pair:
                    continue
                var to = op.unsafe_offset(i * (2 * rows - i - 1) // 2)
                for j in range(i + 1, rows):
                    to[unsafe_offset=j - i - 1] = distance[kind, lanes](
                        xp.unsafe_offset(i * n), xp.unsafe_offset(j * n), n, p
                    )

        each_line[target=target](work, (rows + 1) // 2, rows * n, ctx)
