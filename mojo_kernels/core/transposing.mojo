"""Matrices written with rows and columns exchanged, by blocks that registers hold."""

from std.bit import log2_floor
from std.sys import simd_width_of, size_of

from .memory import Address
from .vectors import MANY_REGISTERS, copy_line, spread_line

# Rows that are written together: whole lines of memory are read of each column.
comptime STRIP = 32
# Rows of two or four columns that are written together.
comptime SOME = 16


def _edge[dtype: DType]() -> Int:
    """Rows and columns of a block: of 16 bits half as many where registers are few."""
    var width = min(16, simd_width_of[dtype]())
    return width // 2 if size_of[dtype]() == 2 and not MANY_REGISTERS else width


@no_inline
def transpose[
    dtype: DType, //
](
    to: Address[dtype], source: Address[dtype], rows: Int, columns: Int, to_row: Int, column: Int
):
    """`to[i * to_row + j] = source[j * column + i]` for each of `rows` and `columns`."""
    comptime edge = _edge[dtype]()
    if columns == 2 and to_row == 2 and rows >= SOME:
        for begun in range(0, rows, SOME):
            # The last rows overlap those before them, here and below.
            var i = min(begun, rows - SOME)
            var first = source.unsafe_load[width=SOME](i)
            to.unsafe_store(2 * i, first.interleave(source.unsafe_load[width=SOME](column + i)))
    elif columns == 4 and to_row == 4 and rows >= SOME:
        for begun in range(0, rows, SOME):
            var i = min(begun, rows - SOME)
            var s = source.unsafe_offset(i)
            var even = s.unsafe_load[width=SOME](0).interleave(s.unsafe_load[width=SOME](2 * column))
            var odd = s.unsafe_load[width=SOME](column).interleave(
                s.unsafe_load[width=SOME](3 * column)
            )
            to.unsafe_store(4 * i, even.interleave(odd))
    elif rows < edge:
        for i in range(rows):
            copy_line(to.unsafe_offset(i * to_row), source.unsafe_offset(i), column, columns)
    elif columns < edge:
        for j in range(columns):
            spread_line(to.unsafe_offset(j), source.unsafe_offset(j * column), to_row, rows)
    else:
        for begun in range(0, rows, STRIP):
            for right in range(0, columns, edge):
                var j = min(right, columns - edge)
                for down in range(begun, min(begun + STRIP, rows), edge):
                    var i = min(down, rows - edge)
                    _block[edge](
                        to.unsafe_offset(i * to_row + j),
                        source.unsafe_offset(j * column + i),
                        to_row,
                        column,
                    )


@always_inline
def _block[
    dtype: DType, //, edge: Int
](to: Address[dtype], source: Address[dtype], to_row: Int, column: Int):
    var rows = Array[SIMD[dtype, edge], edge](fill=0)
    comptime for j in range(edge):
        rows[j] = source.unsafe_load[width=edge](j * column)
    # Shuffling the first half of the rows into the second, as often as the edge halves.
    comptime for _ in range(log2_floor(edge)):
        var shuffled = Array[SIMD[dtype, edge], edge](fill=0)
        comptime for k in range(edge // 2):
            var pair = rows[k].interleave(rows[k + edge // 2])
            shuffled[2 * k] = pair.slice[edge]()
            shuffled[2 * k + 1] = pair.slice[edge, offset=edge]()
        rows = shuffled^
    comptime for i in range(edge):
        to.unsafe_store(i * to_row, rows[i])
