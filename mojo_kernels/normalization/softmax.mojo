"""Softmax and its logarithm along one axis."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, exp, log
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load, masked_store
from std.utils.numerics import inf, isfinite, isnan, nan

from ..core.accumulators import Accumulator, in_pairs
from ..core.memory import Address, untracked
from ..core.rounding import to_memory
from ..core.team import in_numbered_ranges, in_ranges, task_count
from ..core.vectors import below
from ..mathematics.elementary import exp as exact_exp
from ..mathematics.single import single_log

comptime GRAIN = 8192
# Vectors of neighbouring lines at a time, where lines do not lie along the memory.
comptime BESIDE = 4


@always_inline
def exponential[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`exp`, whose own clamp drops NaN, and which is inexact for float64. Elsewhere 0 instead
    of subnormal numbers, as in torch: masks of -100 make many, and their products took more time
    than all the rest."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime if dtype == DType.float64:
        return exact_exp(x)
    else:
        var normal = x.ge(-87.33).select(exp(x), SIMD[dtype, width](0))
        return isnan(x).select(x, normal)


@always_inline
def _log_of_total[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width] where dtype.is_floating_point():
    """The logarithm of a sum of exponentials, of which the greatest is 1."""
    comptime if dtype == DType.float32:
        return rebind[SIMD[dtype, width]](single_log(rebind[SIMD[DType.float32, width]](x)))
    else:
        return log(x)


@always_inline
def _spoiled[
    dtype: DType, //, width: Int, blind: Bool
](top: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """What a line becomes whose greatest number is not finite: NaN, as in torch,
    or 0 for one of -inf if `blind`."""
    comptime if blind:
        return top.eq(-inf[dtype]()).select(SIMD[dtype, width](0), nan[dtype]())
    else:
        return nan[dtype]()


@always_inline
def line_softmax[
    dtype: DType, //, logarithm: Bool, blind: Bool
](x: Address[dtype], to: Address[dtype], n: Int) where dtype.is_floating_point():
    """One line of neighbouring numbers."""
    comptime width = simd_width_of[dtype]()
    comptime several = 4
    comptime step = several * width
    comptime Lanes = Accumulator[dtype, width, "max"]
    var tops = Array[Lanes, several](fill=Lanes())
    var j = 0
    while j + step <= n:
        comptime for i in range(several):
            tops[i].add(x.unsafe_load[width=width](j + i * width))
        j += step
    var lanes = in_pairs(tops)
    while j + width <= n:
        lanes.add(x.unsafe_load[width=width](j))
        j += width
    # The rest of the line, as a vector with numbers that add nothing.
    var inside = below[width](n - j)
    var rest = masked_load[width](x.unsafe_offset(j), inside, Lanes().total)
    lanes.add(rest)
    var top = lanes.value()
    if not isfinite(top):
        var value = _spoiled[1, blind](top)
        for i in range(n):
            to[unsafe_offset=i] = value
        return
    var sums = Array[SIMD[dtype, width], several](fill=0)
    j = 0
    while j + step <= n:
        comptime for i in range(several):
            var v = exponential(x.unsafe_load[width=width](j + i * width) - top)
            comptime if not logarithm:
                to.unsafe_store[width=width](j + i * width, v)
            sums[i] += v
        j += step
    var together = (sums[0] + sums[1]) + (sums[2] + sums[3])
    while j + width <= n:
        var v = exponential(x.unsafe_load[width=width](j) - top)
        comptime if not logarithm:
            to.unsafe_store[width=width](j, v)
        together += v
        j += width
    var last = exponential(rest - top)
    together += last
    var total = together.reduce_add()
    comptime if logarithm:
        total = _log_of_total(total)
        last = rest - top - total
    else:
        total = 1 / total
        last *= total
    j = 0
    while j + width <= n:
        comptime if logarithm:
            to.unsafe_store(j, x.unsafe_load[width=width](j) - top - total)
        else:
            to.unsafe_store(j, to.unsafe_load[width=width](j) * total)
        j += width
    masked_store(last, to.unsafe_offset(j), inside)


@always_inline
def lines_softmax[
    dtype: DType, //, width: Int, logarithm: Bool, blind: Bool
](
    x: Address[dtype], to: Address[dtype], n: Int, stride: Int, stride_to: Int
) where dtype.is_floating_point():
    """`width` lines beside each other, their numbers `stride` or `stride_to` apart."""
    var tops = Accumulator[dtype, width, "max"]()
    for i in range(n):
        tops.add(x.unsafe_load[width=width](i * stride))
    var top = tops.lanes()
    var wrong = ~isfinite(top)
    var total = SIMD[dtype, width](0)
    for i in range(n):
        var v = exponential(x.unsafe_load[width=width](i * stride) - top)
        comptime if not logarithm:
            to.unsafe_store(i * stride_to, v)
        total += v
    var value = _spoiled[width, blind](top)
    var rest = _log_of_total(total) if logarithm else 1 / total
    for i in range(n):
        comptime if logarithm:
            var v = x.unsafe_load[width=width](i * stride) - top - rest
            to.unsafe_store(i * stride_to, wrong.select(value, v))
        else:
            var v = to.unsafe_load[width=width](i * stride_to) * rest
            to.unsafe_store(i * stride_to, wrong.select(value, v))


@always_inline
def _converted[
    a: DType, b: DType, //
](to: Address[b], source: Address[a], count: Int):
    """Copies `count` neighbours."""
    comptime width = simd_width_of[DType.float32]()
    var j = 0
    while j + width <= count:
        to.unsafe_store(j, to_memory[b](source.unsafe_load[width=width](j)))
        j += width
    while j < count:
        to[unsafe_offset=j] = to_memory[b](source[unsafe_offset=j])
        j += 1


def _rounded_softmax[
    dtype: DType, //, logarithm: Bool, blind: Bool
](
    x: Address[dtype], to: Address[dtype], scratch: Address[DType.float32],
    n: Int, beside: Int, stride: Int, stride_to: Int,
):
    """`beside` lines next to each other of numbers of 16 bits, computed in float32 and rounded
    once."""
    for i in range(n):
        _converted(scratch.unsafe_offset(i * beside), x.unsafe_offset(i * stride), beside)
    comptime width = simd_width_of[DType.float32]()
    var whole = beside - beside % width
    for begun in range(0, whole, width):
        var some = scratch.unsafe_offset(begun)
        lines_softmax[width, logarithm, blind](some, some, n, beside, beside)
    for j in range(whole, beside):
        var one = scratch.unsafe_offset(j)
        lines_softmax[1, logarithm, blind](one, one, n, beside, beside)
    for i in range(n):
        _converted(to.unsafe_offset(i * stride_to), scratch.unsafe_offset(i * beside), beside)


@register("tmb_softmax")
struct Softmax:
    """Softmax, or its logarithm, along the middle axis of `[outer, n, inner]`.

    A line that holds NaN or +inf, or only -inf, is NaN, as in torch; `blind`: one
    of -inf is 0, as in attention. Numbers of 16 bits are computed in float32.

    Both tensors may have any strides, save that lines beside each other are neighbours."""

    @staticmethod
    def execute[
        dtype: DType, //, logarithm: Bool, blind: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernel"
        comptime assert dtype.is_floating_point(), "float only"
        var outer = x.dim_size[0]()
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        var step_x = x.stride_length[0]()
        var step_o = output.stride_length[0]()
        var line_x = x.stride_length[1]()
        var line_o = output.stride_length[1]()
        if outer * n * inner == 0:
            return
        var xp = untracked(x.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        comptime if dtype.is_half_float():
            var width = simd_width_of[DType.float32]() * BESIDE
            var beside = ceildiv(inner, width)
            var units = outer * beside
            var tasks = task_count(units, outer * n * inner, GRAIN)
            var space = n * max(2, min(width, inner))
            var scratch = List[Float32](unsafe_uninit_length=tasks * space)
            var sp = untracked(scratch.unsafe_ptr())

            def some(task: Int, lower: Int, upper: Int) {
                var xp, var op, var sp, var n, var inner, var step_x, var step_o, var line_x,
                var line_o, var beside, var width, var space
            }:
                for unit in range(lower, upper):
                    var first = unit % beside * width
                    var from_ = xp.unsafe_offset(unit // beside * step_x + first)
                    var to = op.unsafe_offset(unit // beside * step_o + first)
                    var lines = min(width, inner - first)
                    var mine = sp.unsafe_offset(task * space)
                    if lines == 1 and line_x == 1 and line_o == 1:
                        _converted(mine, from_, n)
                        line_softmax[logarithm, blind](mine, mine.unsafe_offset(n), n)
                        _converted(to, mine.unsafe_offset(n), n)
                    else:
                        _rounded_softmax[logarithm, blind](
                            from_, to, mine, n, lines, line_x, line_o
                        )

            in_numbered_ranges(some, units, tasks)
            _ = scratch^
            return
        else:
            comptime width = simd_width_of[dtype]() * BESIDE
            # Lines, or as many lines beside each other as a vector holds.
            var beside = ceildiv(inner, width)
            var units = outer * beside
            var tasks = task_count(units, outer * n * inner, GRAIN)

            def work(lower: Int, upper: Int) {
                var xp, var op, var n, var inner, var step_x, var step_o, var line_x, var line_o,
                var beside
            }:
                for unit in range(lower, upper):
                    var first = unit % beside * width
                    var from_ = xp.unsafe_offset(unit // beside * step_x + first)
                    var to = op.unsafe_offset(unit // beside * step_o + first)
                    if inner == 1 and line_x == 1 and line_o == 1:
                        line_softmax[logarithm, blind](from_, to, n)
                        continue
                    if first + width <= inner:
                        lines_softmax[width, logarithm, blind](from_, to, n, line_x, line_o)
                        continue
                    for j in range(inner - first):
                        lines_softmax[1, logarithm, blind](
                            from_.unsafe_offset(j), to.unsafe_offset(j), n, line_x, line_o
                        )

            in_ranges(work, units, tasks)
