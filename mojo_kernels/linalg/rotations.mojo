"""Plane rotations of rows: kept until there are many, then applied strip by strip, so that a
strip stays in the cache and threads share the columns."""

from std.math import ceildiv
from std.memory import Pointer
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_ranges

# Rotations that are kept.
comptime KEPT = 4096
# Bytes of a strip of a row.
comptime STRIP = 512


@always_inline
def rotate[
    dtype: DType, //
](x: Address[dtype], y: Address[dtype], c: Scalar[dtype], s: Scalar[dtype], n: Int):
    """`(x, y) = (c x + s y, c y - s x)`."""
    comptime width = simd_width_of[dtype]()
    var cosine = SIMD[dtype, width](c)
    var sine = SIMD[dtype, width](s)
    var i = 0
    while i + width <= n:
        var a = x.unsafe_load[width=width](i)
        var b = y.unsafe_load[width=width](i)
        x.unsafe_store(i, cosine.fma(a, sine * b))
        y.unsafe_store(i, cosine.fma(b, -(sine * a)))
        i += width
    while i < n:
        var a = x[unsafe_offset=i]
        var b = y[unsafe_offset=i]
        x[unsafe_offset=i] = c.fma(a, s * b)
        y[unsafe_offset=i] = c.fma(b, -(s * a))
        i += 1


struct Rotations[dtype: DType, target: StaticString](Movable):
    """Rotations of rows of one matrix `[rows, columns]`."""

    var matrix: Address[Self.dtype]
    var columns: Int
    var threads: Int
    var count: Int
    var cosines: List[Scalar[Self.dtype]]
    var rows: List[Int32]

    def __init__(out self, matrix: Address[Self.dtype], columns: Int, threads: Int):
        """Rotations of the rows of `matrix`, of `columns` numbers each; 0 for none."""
        self.matrix = untracked(matrix)
        self.columns = columns
        self.threads = threads
        self.count = 0
        self.cosines = List[Scalar[Self.dtype]]()
        self.rows = List[Int32]()
        comptime if Self.target == "cpu":
            if columns > 0:
                self.cosines.resize(unsafe_uninit_length=2 * KEPT)
                self.rows.resize(unsafe_uninit_length=2 * KEPT)

    @always_inline
    def add(mut self, i: Int, j: Int, c: Scalar[Self.dtype], s: Scalar[Self.dtype]):
        """Rotates rows `i` and `j`, now or later."""
        if self.columns == 0:
            return
        comptime if Self.target == "cpu":
            var at = 2 * self.count
            var numbers = self.cosines.unsafe_ptr()
            var places = self.rows.unsafe_ptr()
            numbers[unsafe_offset=at] = c
            numbers[unsafe_offset = at + 1] = s
            places[unsafe_offset=at] = Int32(i)
            places[unsafe_offset = at + 1] = Int32(j)
            self.count += 1
            if self.count == KEPT:
                self.finish()
        else:
            var matrix = untracked(self.matrix)
            rotate(
                matrix.unsafe_offset(i * self.columns),
                matrix.unsafe_offset(j * self.columns),
                c,
                s,
                self.columns,
            )

    def finish(mut self):
        """Applies what is kept."""
        comptime if Self.target == "cpu":
            if self.count == 0:
                return
            comptime wide = STRIP // 4 if Self.dtype == DType.float32 else STRIP // 8
            var strips = ceildiv(self.columns, wide)
            var tasks = min(self.threads, strips)
            if self.count * self.columns < 200_000:
                tasks = 1
            var matrix = untracked(self.matrix)
            var columns = self.columns
            var count = self.count
            var numbers = untracked(self.cosines.unsafe_ptr())
            var places = untracked(self.rows.unsafe_ptr())

            def work(lower: Int, upper: Int) {
                var matrix, var columns, var count, var numbers, var places
            }:
                for strip in range(lower, upper):
                    var first = strip * wide
                    var size = min(wide, columns - first)
                    var part = matrix.unsafe_offset(first)
                    for r in range(count):
                        rotate(
                            part.unsafe_offset(Int(places[unsafe_offset = 2 * r]) * columns),
                            part.unsafe_offset(
                                Int(places[unsafe_offset = 2 * r + 1]) * columns
                            ),
                            numbers[unsafe_offset = 2 * r],
                            numbers[unsafe_offset = 2 * r + 1],
                            size,
                        )

            if tasks == 1:
                work(0, strips)
            else:
                in_ranges(work, strips, tasks)
            self.count = 0
