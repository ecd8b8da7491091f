"""Copies of tiles between tensors of any strides."""

from std.memory import Pointer, unsafe_memcpy
from std.utils.index import IndexList

from ..core.memory import Address
from ..core.transposing import transpose
from ..core.vectors import MOST_APART, copy_backwards, copy_line, spread_line
from .table_row import Bytes, DIMS

# Elements of a value that is the same everywhere.
comptime UNIFORM = 64


@fieldwise_init
struct Plane(ImplicitlyCopyable, RegisterPassable):
    """A matrix and its strides, in elements, where it is copied to and where it comes from."""

    var rows: Int
    var columns: Int
    var to_row: Int
    var to_column: Int
    var row: Int
    var column: Int


@no_inline
def copy_plane[dtype: DType](to: Bytes, source: Bytes, p: Plane):
    var rows = p.rows
    var columns = p.columns
    var to_row = p.to_row
    var to_column = p.to_column
    var row = p.row
    var column = p.column
    var t = to.unsafe_bitcast[Scalar[dtype]]()
    var s = source.unsafe_bitcast[Scalar[dtype]]()
    comptime w = 16
    if row == 0 and rows > 1 and to_column == 1 and to_row == columns and columns < 4 * w:
        # The first row, and then what there is again and again.
        copy_plane[dtype](to, source, Plane(1, columns, columns, 1, 0, column))
        var made = columns
        while made < rows * columns:
            var more = min(made, rows * columns - made)
            unsafe_memcpy(dest=t.unsafe_offset(made), src=t, count=more)
            made += more
        return
    if row == 0 and rows > 1 and to_column == 1 and column > 1:
        # The first row again and again.
        copy_plane[dtype](to, source, Plane(1, columns, to_row, 1, 0, column))
        copy_plane[dtype](
            t.unsafe_offset(to_row).unsafe_bitcast[Int8](), to, Plane(rows - 1, columns, to_row, 1, 0, 1)
        )
        return
    if to_column == 1 and 1 <= column <= MOST_APART:
        for i in range(rows):
            copy_line(t.unsafe_offset(i * to_row), s.unsafe_offset(i * row), column, columns)
    elif to_column == 1 and column == 0:
        # Where rows follow each other, what is written past the end of one belongs to the next.
        var room = rows * columns if to_row == columns else 0
        for i in range(rows):
            var line = t.unsafe_offset(i * to_row)
            var value = SIMD[dtype, w](s[unsafe_offset = i * row])
            var j = 0
            while j + w <= columns:
                line.unsafe_store(j, value)
                j += w
            if j < columns and i * columns + j + w <= room:
                line.unsafe_store(j, value)
                j = columns
            while j < columns:
                line[unsafe_offset=j] = value[0]
                j += 1
    elif column == 1 and 2 <= to_column <= MOST_APART:
        for i in range(rows):
            spread_line(t.unsafe_offset(i * to_row), s.unsafe_offset(i * row), to_column, columns)
    elif to_column == 1 and column == -1:
        for i in range(rows):
            copy_backwards(t.unsafe_offset(i * to_row), s.unsafe_offset(i * row), columns)
    elif to_column == 1 and (row == 1 or row == -1):
        # Of rows that come backwards, the last is the first in memory.
        var first = 0 if row == 1 else rows - 1
        transpose(
            t.unsafe_offset(first * to_row), s.unsafe_offset(first * row), rows, columns,
            to_row * row, column,
        )
    else:
        for i in range(rows):
            var line = t.unsafe_offset(i * to_row)
            var from_line = s.unsafe_offset(i * row)
            for j in range(columns):
                line[unsafe_offset = j * to_column] = from_line[unsafe_offset = j * column]


@no_inline
def copy_matrix(bytes: Int, to: Bytes, source: Bytes, plane: Plane):
    """A matrix of any strides into one of any."""
    var p = plane
    if p.to_column != 1 and p.to_row == 1:
        p = Plane(
            p.columns, p.rows, p.to_column, p.to_row, p.column, p.row
        )
    if bytes == 4:
        copy_plane[DType.uint32](to, source, p)
    elif bytes == 1:
        copy_plane[DType.uint8](to, source, p)
    elif bytes == 8:
        copy_plane[DType.uint64](to, source, p)
    else:
        copy_plane[DType.uint16](to, source, p)


@no_inline
def copy_tile(
    bytes: Int,
    dims: Int,
    size: IndexList[DIMS],
    to: Bytes,
    to_strides: IndexList[DIMS],
    source: Bytes,
    strides: IndexList[DIMS],
):
    """A tile from strides to strides."""
    # Its dims that have more than one element, merged where both lie so.
    var n = IndexList[DIMS](1)
    var t = IndexList[DIMS](0)
    var s = IndexList[DIMS](0)
    var count = 0
    for i in range(dims):
        if size[i] == 1:
            continue
        if count > 0 and t[count - 1] == to_strides[i] * size[i] and s[
            count - 1
        ] == strides[i] * size[i]:
            n[count - 1] *= size[i]
            t[count - 1] = to_strides[i]
            s[count - 1] = strides[i]
            continue
        n[count] = size[i]
        t[count] = to_strides[i]
        s[count] = strides[i]
        count += 1
    if count == 0:
        copy_matrix(bytes, to, source, Plane(1, 1, 0, 1, 0, 1))
        return
    var columns = count - 1
    if count == 1:
        if t[0] == 1 and s[0] == 1:
            unsafe_memcpy(dest=to, src=source, count=n[0] * bytes)
            return
        copy_matrix(bytes, to, source, Plane(1, n[0], 0, t[0], 0, s[0]))
        return
    var rows = count - 2
    var outer = 1
    for i in range(rows):
        outer *= n[i]
    var at = IndexList[DIMS](0)
    var to_at = 0
    var from_at = 0
    for _ in range(outer):
        copy_matrix(
            bytes,
            to.unsafe_offset(to_at * bytes),
            source.unsafe_offset(from_at * bytes),
            Plane(n[rows], n[columns], t[rows], t[columns], s[rows], s[columns]),
        )
        for i in range(rows - 1, -1, -1):
            at[i] += 1
            to_at += t[i]
            from_at += s[i]
            if at[i] < n[i]:
                break
            to_at -= n[i] * t[i]
            from_at -= n[i] * s[i]
            at[i] = 0


@no_inline
def spread(bytes: Int, to: Bytes, bits: Int64):
    """Makes `UNIFORM` elements the same."""
    if bytes == 4:
        _filled[DType.uint32](to, bits)
    elif bytes == 1:
        _filled[DType.uint8](to, bits)
    elif bytes == 8:
        _filled[DType.uint64](to, bits)
    else:
        _filled[DType.uint16](to, bits)


@always_inline
def _filled[dtype: DType](to: Bytes, bits: Int64):
    var value = SIMD[dtype, UNIFORM](bits.cast[dtype]())
    to.unsafe_bitcast[Scalar[dtype]]().unsafe_store(0, value)


@always_inline
def bits_of(bytes: Int, p: Bytes) -> Int64:
    if bytes == 4:
        return p.unsafe_bitcast[Int32]()[].cast[DType.int64]()
    if bytes == 8:
        return p.unsafe_bitcast[Int64]()[]
    if bytes == 1:
        return p[].cast[DType.int64]()
    return p.unsafe_bitcast[Int16]()[].cast[DType.int64]()
