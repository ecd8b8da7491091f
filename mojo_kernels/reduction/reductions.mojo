"""Reductions along one axis: sums, means, products, extremes and their positions."""

from extensibility import OutputTensor, register
from extensibility import _FusedInputTensor as FusedInputTensor
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.index import IndexList
from std.utils.numerics import isfinite

from ..core.accumulators import Accumulator, both, in_pairs, rounding, start
from ..core.fused import load
from ..core.memory import Address, untracked
from ..core.team import in_ranges

# Numbers that are added up one after the other.
comptime BLOCK = 4096
# Lines that are added up one after the other.
comptime LINES = 16
# Vectors beside each other, where the axis does not lie along the memory.
comptime BESIDE = 8
# Numbers of a task.
comptime GRAIN = 131072
# Parts that a long axis has at most. They depend on sizes only: so do results.
comptime PARTS = 64


def along[
    dtype: DType, kind: StaticString, Load: def[width: Int](Int) -> SIMD[dtype, width]
](load: Load, begin: Int, n: Int) -> Scalar[dtype]:
    """The reduction of `n` neighbouring numbers; long ones by halves, so that the error
    does not grow with them."""
    comptime width = simd_width_of[dtype]()
    comptime several = 4
    comptime step = several * width
    if n > BLOCK:
        var half = ceildiv(n, 2 * BLOCK) * BLOCK
        return both[kind](
            along[dtype, kind](load, begin, half),
            along[dtype, kind](load, begin + half, n - half),
        )
    comptime Lanes = Accumulator[dtype, width, kind]
    var beside = Array[Lanes, several](fill=Lanes())
    var j = 0
    while j + step <= n:
        comptime for i in range(several):
            beside[i].add(load[width](begin + j + i * width))
        j += step
    var lanes = in_pairs(beside)
    while j + width <= n:
        lanes.add(load[width](begin + j))
        j += width
    var total = lanes.value()
    while j < n:
        total = both[kind](load[1](begin + j), total)
        j += 1
    return total


@always_inline
def across[
    dtype: DType,
    width: Int,
    count: Int,
    kind: StaticString,
    Load: def[width: Int](Int, Int) -> SIMD[dtype, width],
](load: Load, begin: Int, n: Int, column: Int, to: Address[dtype]):
    """The reductions of `count` vectors of lines beside each other, from a column on. What sums
    of floats lose, where a few lines are added to the others, is added at the end."""
    comptime Lanes = Accumulator[dtype, width, kind]
    comptime precise = kind == "sum" and dtype.is_floating_point()
    var totals = Array[Lanes, count](fill=Lanes())
    var lost = Array[SIMD[dtype, width], count](fill=0)
    var i = begin
    while i < begin + n:
        var end = min(i + LINES, begin + n)
        var sums = Array[Lanes, count](fill=Lanes())
        while i < end:
            comptime for v in range(count):
                sums[v].add(load[width](i, column + v * width))
            i += 1
        comptime for v in range(count):
            comptime if precise:
                lost[v] += rounding(totals[v].total, sums[v].total)
            totals[v].join(sums[v])
    comptime for v in range(count):
        var total = totals[v].lanes()
        comptime if precise:
            # Of infinities it is NaN.
            total = isfinite(total).select(total + lost[v], total)
        to.unsafe_store(v * width, total)


@always_inline
def _add_lines[
    dtype: DType,
    width: Int,
    count: Int,
    kind: StaticString,
    Load: def[width: Int](Int, Int) -> SIMD[dtype, width],
](
    load: Load,
    begin: Int,
    end: Int,
    column: Int,
    to: Address[dtype],
    lost: Address[dtype],
    last: Bool,
):
    """Adds a few lines to the totals of `count` vectors of columns, and what sums of floats lose to
    what they have lost, which is added at the end. The first lines are those from 0 on."""
    comptime Lanes = Accumulator[dtype, width, kind]
    comptime precise = kind == "sum" and dtype.is_floating_point()
    var sums = Array[Lanes, count](fill=Lanes())
    for i in range(begin, end):
        comptime for v in range(count):
            sums[v].add(load[width](i, column + v * width))
    comptime for v in range(count):
        var at = column + v * width
        comptime if precise:
            var before = to.unsafe_load[width=width](at)
            var lacks = lost.unsafe_load[width=width](at) + rounding(before, sums[v].total)
            var total = before + sums[v].total
            if last:
                # Of infinities it is NaN.
                total = isfinite(total).select(total + lacks, total)
            to.unsafe_store(at, total)
            lost.unsafe_store(at, lacks)
        else:
            sums[v].add(to.unsafe_load[width=width](at))
            to.unsafe_store(at, sums[v].lanes())


@always_inline
def across_all[
    dtype: DType,
    kind: StaticString,
    Load: def[width: Int](Int, Int) -> SIMD[dtype, width],
](load: Load, begin: Int, n: Int, columns: Int, to: Address[dtype], lost: Address[dtype]):
    """The reductions of many columns, in the order of the memory: `across` of all of them, a few
    lines at a time. `lost` is scratch memory."""
    comptime width = simd_width_of[dtype]()
    comptime wide = width * BESIDE
    for j in range(columns):
        to[unsafe_offset=j] = start[kind, dtype]()
        lost[unsafe_offset=j] = 0
    for i in range(begin, begin + n, LINES):
        var end = min(i + LINES, begin + n)
        var last = end == begin + n
        var j = 0
        while j + wide <= columns:
            _add_lines[dtype, width, BESIDE, kind](load, i, end, j, to, lost, last)
            j += wide
        while j + width <= columns:
            _add_lines[dtype, width, 1, kind](load, i, end, j, to, lost, last)
            j += width
        while j < columns:
            _add_lines[dtype, 1, 1, kind](load, i, end, j, to, lost, last)
            j += 1


@always_inline
def _together[
    dtype: DType, //, width: Int, kind: StaticString
](parts: Address[dtype], count: Int, inner: Int, j: Int, to: Address[dtype]):
    """The totals of parts, of some columns."""
    comptime held = DType.float64 if kind == "sum" and dtype.is_floating_point() else dtype
    var total = SIMD[held, width](start[kind, held]())
    for part in range(count):
        var value = parts.unsafe_load[width=width](part * inner + j)
        total = both[kind](value.cast[held](), total)
    to.unsafe_store(j, total.cast[dtype]())


@register("tmb_reduce")
struct Reduce:
    """Reduces the last axis of `x`, or with `beside` the last but one, to size 1. `kind`:
    "sum", "prod", "max" or "min"; extremes of floats keep NaN, sums of integers wrap.

    What computes `x` becomes a part of this kernel."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, kind: StaticString, beside: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: FusedInputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernels"
        comptime axis = rank - 2 if beside else rank - 1
        comptime width = simd_width_of[dtype]()
        comptime wide = width * BESIDE
        var outer = 1
        comptime for i in range(axis):
            outer *= x.dim_size[i]()
        var n = x.dim_size[axis]()
        var inner = x.dim_size[rank - 1]() if beside else 1
        if outer * inner == 0:
            return
        # Of many columns all are reduced together, in the order of the memory.
        var many = beside and inner >= 2 * wide and n > LINES
        var blocks = 1 if many else ceildiv(inner, wide)
        var units = outer * blocks
        var parts = outer * n * inner // GRAIN // units
        parts = max(1, min(min(parts, PARTS), n // 64))
        if units >= PARTS:
            parts = 1
        var length = ceildiv(n, parts)
        var to = untracked(output.unsafe_ptr())
        var middle = List[Scalar[dtype]](length=outer * parts * inner if parts > 1 else 0, fill=0)
        var rp = untracked(middle.unsafe_ptr()) if parts > 1 else to
        var each = max(1, GRAIN // max(1, length * (inner if many else min(inner, wide))))
        var tasks = ceildiv(units * parts, each)

        def work(lower: Int, upper: Int) {
            var x, var rp, var n, var inner, var blocks, var parts, var length, var many
        }:
            for k in range(lower, upper):
                var unit = k // parts
                var part = k % parts
                var begin = part * length
                var size = max(0, min(n, begin + length) - begin)
                var line = unit // blocks
                var at = IndexList[rank](0)
                var rest = line
                comptime for i in range(axis - 1, -1, -1):
                    at[i] = rest % x.dim_size[i]()
                    rest //= x.dim_size[i]()

                @always_inline
                def along_line[w: Int](j: Int) {var x, var at} -> SIMD[dtype, w]:
                    var place = at
                    place[rank - 1] = j
                    return load[w](x, place)

                @always_inline
                def across_lines[w: Int](i: Int, j: Int) {var x, var at} -> SIMD[dtype, w]:
                    var place = at
                    comptime if beside:
                        place[rank - 2] = i
                    place[rank - 1] = j
                    return load[w](x, place)

                comptime if not beside:
                    rp[unsafe_offset=k] = along[dtype, kind](along_line, begin, size)
                else:
                    var first = unit % blocks * wide
                    var sink = rp.unsafe_offset((line * parts + part) * inner)
                    if many:
                        var scratch = List[Scalar[dtype]](unsafe_uninit_length=inner)
                        var lost = untracked(scratch.unsafe_ptr())
                        across_all[dtype, kind](across_lines, begin, size, inner, sink, lost)
                        _ = scratch^
                        continue
                    if first + wide <= inner:
                        across[dtype, width, BESIDE, kind](
                            across_lines, begin, size, first, sink.unsafe_offset(first)
                        )
                        continue
                    while first + width <= inner:
                        across[dtype, width, 1, kind](
                            across_lines, begin, size, first, sink.unsafe_offset(first)
                        )
                        first += width
                    while first < inner:
                        across[dtype, 1, 1, kind](
                            across_lines, begin, size, first, sink.unsafe_offset(first)
                        )
                        first += 1

        in_ranges(work, units * parts, tasks)
        if parts == 1:
            return
        for line in range(outer):
            var from_ = rp.unsafe_offset(line * parts * inner)
            var sink = to.unsafe_offset(line * inner)
            var j = 0
            while j + width <= inner:
                _together[width, kind](from_, parts, inner, j, sink)
                j += width
            while j < inner:
                _together[1, kind](from_, parts, inner, j, sink)
                j += 1
        _ = middle^
