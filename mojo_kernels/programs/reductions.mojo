"""Reductions of programs: of rows of blocks into totals, which later blocks are added to.

A total is 16 bytes: of sums of floats a float64 and what it lacks, else a number of the dtype.
"""

from std.memory import Pointer
from std.sys import size_of
from std.utils.numerics import isfinite

from ..core.accumulators import Accumulator, both, in_pairs, rounding, start
from ..core.memory import Untracked
from .operations import Bytes, load, to_memory, vector, wide

comptime TOTAL = 16

# What to do with totals.
comptime BEGIN = 0
comptime ADD = 1
comptime MERGE = 2
comptime END = 3
# The results of whole rows, with the distance of the results above these bits.
comptime WHOLE = 4
# As `ADD`, of a block that has a column for each total.
comptime ADD_ACROSS = 5
# Vectors that are added up one after the other.
comptime BLOCK = 32


def counted[kind: StaticString, dtype: DType]() -> DType:
    """The dtype in which the reduction of a row is."""
    return DType.uint8 if dtype == DType.bool else wide[dtype]()


@no_inline
def _row[kind: StaticString, dtype: DType](x: Bytes, n: Int) -> Scalar[counted[kind, dtype]()]:
    """The reduction of a row of a block."""
    comptime work = counted[kind, dtype]()
    comptime memory = DType.uint8 if dtype == DType.bool else dtype
    comptime w = vector[memory]()
    if n < w:
        var few = start[kind, work]()
        for i in range(n):
            few = both[kind](few, rebind[Scalar[work]](load[memory, 1](x, i)))
        return few
    comptime several = 4
    comptime Lanes = Accumulator[work, w, kind]
    var lanes = Lanes()
    var j = 0
    while j + several * w <= n:
        var end = min(n, j + BLOCK * several * w)
        var beside = Array[Lanes, several](fill=Lanes())
        while j + several * w <= end:
            comptime for u in range(several):
                beside[u].add(rebind[SIMD[work, w]](load[memory, w](x, j + u * w)))
            j += several * w
        lanes.join(in_pairs(beside))
    while j + w <= n:
        lanes.add(rebind[SIMD[work, w]](load[memory, w](x, j)))
        j += w
    var total = lanes.value()
    while j < n:
        total = both[kind](total, rebind[Scalar[work]](load[memory, 1](x, j)))
        j += 1
    return total


@always_inline
def _add(total: Pointer[Float64, Untracked], value: Float64, lacks: Float64):
    """Adds to a sum and what it lacks."""
    var rest = rounding(total[], value)
    total.unsafe_store(0, total[] + value)
    total.unsafe_store(1, total[unsafe_offset=1] + rest + lacks)


@always_inline
def _add_columns[
    dtype: DType, w: Int, several: Int
](totals: Bytes, x: Bytes, columns: Int, column: Int, rows: Int):
    """Adds `several * w` columns of a block of short floats to their totals."""
    comptime Sums = SIMD[DType.float64, w]
    var sums = Array[Sums, several](fill=Sums(0))
    for first in range(0, rows, BLOCK):
        var some = Array[SIMD[DType.float32, w], several](fill=SIMD[DType.float32, w](0))
        for i in range(first, min(rows, first + BLOCK)):
            comptime for u in range(several):
                var v = load[dtype, w](x, i * columns + column + u * w)
                some[u] += rebind[SIMD[DType.float32, w]](v)
        comptime for u in range(several):
            sums[u] += some[u].cast[DType.float64]()
    var to = totals.unsafe_bitcast[Float64]().unsafe_offset(2 * column)
    comptime for u in range(several):
        # Between the totals is what they lack.
        var spread = sums[u].interleave(Sums(0))
        var known = to.unsafe_load[width = 2 * w](2 * u * w)
        to.unsafe_store(2 * u * w, known + rebind[SIMD[DType.float64, 2 * w]](spread))


@no_inline
def _across[dtype: DType](totals: Bytes, x: Bytes, columns: Int, rows: Int):
    comptime w = vector[dtype]()
    var j = 0
    while j + 4 * w <= columns:
        _add_columns[dtype, w, 4](totals, x, columns, j, rows)
        j += 4 * w
    while j + w <= columns:
        _add_columns[dtype, w, 1](totals, x, columns, j, rows)
        j += w
    while j < columns:
        _add_columns[dtype, 1, 1](totals, x, columns, j, rows)
        j += 1


@always_inline
def reduce[
    kind: StaticString, dtype: DType
](totals: Bytes, x: Bytes, rows: Int64, n: Int64, mode: Int64):
    """Totals of rows: begun, with rows of a block added, with other totals added, or one written
    to an element."""
    comptime work = counted[kind, dtype]()
    comptime memory = DType.uint8 if dtype == DType.bool else dtype
    comptime precise = kind == "sum" and work.is_floating_point()
    comptime held = DType.float64 if precise else work
    comptime if precise and work == DType.float32:
        if mode == ADD_ACROSS:
            _across[dtype](totals, x, Int(rows), Int(n))
            return
    if mode & 7 == WHOLE:
        var step = Int(mode >> 3)
        var sink = totals.unsafe_bitcast[Scalar[memory]]()
        for i in range(Int(rows)):
            var row = x.unsafe_offset(i * Int(n) * size_of[Scalar[memory]]())
            var value = to_memory[memory](_row[kind, dtype](row, Int(n)))
            sink.unsafe_store(i * step, value)
        return
    for i in range(Int(rows)):
        var total = totals.unsafe_offset(i * TOTAL).unsafe_bitcast[Scalar[held]]()
        if mode == BEGIN:
            total.unsafe_store(0, start[kind, held]())
            comptime if precise:
                total.unsafe_store(1, Scalar[held](0))
        elif mode == ADD:
            var row = x.unsafe_offset(i * Int(n) * size_of[Scalar[memory]]())
            var value = _row[kind, dtype](row, Int(n)).cast[held]()
            comptime if precise:
                _add(total.unsafe_bitcast[Float64](), value.cast[DType.float64](), 0)
            else:
                total.unsafe_store(0, both[kind](total[], value))
        elif mode == MERGE:
            var other = x.unsafe_offset(i * TOTAL).unsafe_bitcast[Scalar[held]]()
            comptime if precise:
                _add(
                    total.unsafe_bitcast[Float64](),
                    other[].cast[DType.float64](),
                    other[unsafe_offset=1].cast[DType.float64](),
                )
            else:
                total.unsafe_store(0, both[kind](total[], other[]))
        else:
            var value = total[]
            comptime if precise:
                # Of infinities what they lack is NaN.
                if isfinite(value):
                    value += total[unsafe_offset=1]
            x.unsafe_bitcast[Scalar[memory]]().unsafe_store(0, to_memory[memory](value.cast[work]()))
