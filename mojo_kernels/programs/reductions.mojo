"""Reductions of programs: of rows of blocks into totals, which later blocks are added to.

A total is 16 bytes: of sums of floats a float64 and what it lacks, else a number of the dtype.
"""

from std.memory import Pointer
from std.sys import size_of
from std.utils.numerics import isfinite

from ..core.accumulators import Accumulator, both, in_pairs, rounding, start
from ..core.memory import Address, Untracked
from ..core.rounding import to_memory
from .operations import Bytes, load, vector, wide

comptime TOTAL = 16

# What to do with totals.
comptime BEGIN = 0
comptime ADD = 1
comptime MERGE = 2
comptime END = 3
# The results of whole rows, with the distance of the results above these bits.
comptime WHOLE = 4
# Added to these where a block has a column for each total: in so many totals' bytes first float64
# sums, then float32 sums of the last rows, then how many rows these are.
comptime BESIDE = 8
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


@fieldwise_init
struct _Beside(TrivialRegisterPassable):
    """Sums beside each other."""

    var sums: Address[DType.float64]
    var recent: Address[DType.float32]
    var columns: Int

    @always_inline
    def __init__(out self, totals: Bytes, columns: Int):
        self.sums = totals.unsafe_bitcast[Float64]()
        self.recent = totals.unsafe_offset(8 * columns).unsafe_bitcast[Float32]()
        self.columns = columns

    @always_inline
    def rows(self) -> Address[DType.int64]:
        """How many rows the recent sums are of: behind the one of the last column."""
        var place = (self.columns + 1) // 2 * 2
        return self.recent.unsafe_offset(place).unsafe_bitcast[Int64]()

    @no_inline
    def begin(self):
        for j in range(self.columns):
            self.sums[unsafe_offset=j] = 0
            self.recent[unsafe_offset=j] = 0
        self.rows()[] = 0

    @no_inline
    def flush(self):
        """Adds the recent sums to the others."""
        comptime w = vector[DType.float64]()
        var j = 0
        while j + w <= self.columns:
            var more = self.recent.unsafe_load[width=w](j).cast[DType.float64]()
            self.sums.unsafe_store(j, self.sums.unsafe_load[width=w](j) + more)
            self.recent.unsafe_store(j, SIMD[DType.float32, w](0))
            j += w
        while j < self.columns:
            self.sums[unsafe_offset=j] += self.recent[unsafe_offset=j].cast[DType.float64]()
            self.recent[unsafe_offset=j] = 0
            j += 1
        self.rows()[] = 0

    @no_inline
    def add[dtype: DType](self, x: Bytes, rows: Int):
        """Adds the rows of a block."""
        comptime w = vector[dtype]()
        for first in range(0, rows, BLOCK):
            var some = min(BLOCK, rows - first)
            if Int(self.rows()[]) + some > BLOCK:
                self.flush()
            self.rows()[] += Int64(some)
            var j = 0
            while j + 4 * w <= self.columns:
                self._columns[dtype, w, 4](x, j, first, some)
                j += 4 * w
            while j + w <= self.columns:
                self._columns[dtype, w, 1](x, j, first, some)
                j += w
            while j < self.columns:
                self._columns[dtype, 1, 1](x, j, first, some)
                j += 1

    @always_inline
    def _columns[
        dtype: DType, w: Int, several: Int
    ](self, x: Bytes, column: Int, first: Int, rows: Int):
        comptime Sums = SIMD[DType.float32, w]
        var sums = Array[Sums, several](fill=Sums(0))
        comptime for u in range(several):
            sums[u] = self.recent.unsafe_load[width=w](column + u * w)
        for i in range(first, first + rows):
            comptime for u in range(several):
                var v = load[dtype, w](x, i * self.columns + column + u * w)
                sums[u] += rebind[Sums](v)
        comptime for u in range(several):
            self.recent.unsafe_store(column + u * w, sums[u])

    @no_inline
    def merge(self, other: Self):
        self.flush()
        other.flush()
        for j in range(self.columns):
            self.sums[unsafe_offset=j] += other.sums[unsafe_offset=j]

    @always_inline
    def value(self, column: Int) -> Float32:
        var rest = self.recent[unsafe_offset=column].cast[DType.float64]()
        return (self.sums[unsafe_offset=column] + rest).cast[DType.float32]()


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
        if mode & 7 != WHOLE and mode & BESIDE != 0:
            var beside = _Beside(totals, Int(rows))
            if mode == BEGIN + BESIDE:
                beside.begin()
            elif mode == ADD + BESIDE:
                beside.add[dtype](x, Int(n))
            elif mode == MERGE + BESIDE:
                beside.merge(_Beside(x, Int(rows)))
            else:
                var value = to_memory[memory](beside.value(Int(n)).cast[work]())
                x.unsafe_bitcast[Scalar[memory]]().unsafe_store(0, value)
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
