"""Maxima of one row of windows on a CPU: a vector of neighbouring windows at a time where all of
their taps are inside the image, one by one elsewhere."""

from std.math import iota
from std.memory import unsafe_stack_allocation
from std.sys import simd_width_of
from std.utils.numerics import isnan, min_or_neg_inf

from ..core.memory import Address, untracked
from ..core.vectors import MOST_APART, every
from .window import Axis, even, inner, is_even

# Positions are of this width in registers.
comptime width = simd_width_of[DType.float32]()
comptime FARTHEST = Int(Int32.MAX)
# Columns of a plane whose maxima are kept.
comptime COLUMNS = 1024


@always_inline
def max_of_window[
    dtype: DType
](
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    w: Tuple[Int, Int],
    deep: Axis,
    high: Axis,
    wide: Axis,
) -> Tuple[Scalar[dtype], Int]:
    """The maximum between first and end positions, and where it is in the plane."""
    var best = min_or_neg_inf[dtype]()
    var at = (d[0] * high.input + h[0]) * wide.input + w[0]
    for i in range(d[0], d[1], deep.dilation):
        for j in range(h[0], h[1], high.dilation):
            var row = (i * high.input + j) * wide.input
            for k in range(w[0], w[1], wide.dilation):
                var value = plane[unsafe_offset=row + k]
                var better = value > best
                comptime if dtype.is_floating_point():
                    better = better or isnan(value)
                if better:
                    best = value
                    at = row + k
    return (best, at)


@always_inline
def _max_of_windows[
    dtype: DType, //, stride: Int, width: Int
](
    values: Address[dtype],
    positions: Address[DType.int64],
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    first: Int,
    deep: Axis,
    high: Axis,
    wide: Axis,
):
    """The same of `width` windows, of which the first begins at column `first`."""
    var best = SIMD[dtype, width](min_or_neg_inf[dtype]())
    var at = SIMD[DType.int32, width](Int32((d[0] * high.input + h[0]) * wide.input))
    for i in range(d[0], d[1], deep.dilation):
        for j in range(h[0], h[1], high.dilation):
            var row = (i * high.input + j) * wide.input
            for k in range(0, wide.kernel * wide.dilation, wide.dilation):
                var value = every[stride, width](plane.unsafe_offset(row + first + k))
                var better = value.gt(best)
                comptime if dtype.is_floating_point():
                    better = better | isnan(value)
                best = better.select(value, best)
                at = better.select(SIMD[DType.int32, width](Int32(row + k)), at)
    values.unsafe_store[width=width](0, best)
    at += Int32(first) + iota[DType.int32, width]() * Int32(stride)
    positions.unsafe_store[width=width](0, at.cast[DType.int64]())


@always_inline
def _max_of_column[
    dtype: DType, //, width: Int
](
    maxima: Address[dtype],
    places: Address[DType.int32],
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    column: Int,
    deep: Axis,
    high: Axis,
    row: Int,
):
    """The maxima of `width` columns of the windows of a row, and where they are in the plane."""
    var best = SIMD[dtype, width](min_or_neg_inf[dtype]())
    var at = SIMD[DType.int32, width](Int32((d[0] * high.input + h[0]) * row))
    for i in range(d[0], d[1], deep.dilation):
        for j in range(h[0], h[1], high.dilation):
            var line = (i * high.input + j) * row
            var value = plane.unsafe_load[width=width](line + column)
            var better = value.gt(best)
            comptime if dtype.is_floating_point():
                better = better | isnan(value)
            best = better.select(value, best)
            at = better.select(SIMD[DType.int32, width](Int32(line)), at)
    maxima.unsafe_store(column, best)
    places.unsafe_store(column, at + Int32(column) + iota[DType.int32, width]())


@no_inline
def _max_by_columns[
    dtype: DType, //, adaptive: Bool
](
    values: Address[dtype],
    positions: Address[DType.int64],
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    deep: Axis,
    high: Axis,
    wide: Axis,
):
    """A row of windows of at most `COLUMNS` columns: the maxima of each column first."""
    var maxima = untracked(unsafe_stack_allocation[COLUMNS, Scalar[dtype], alignment=64]())
    var places = untracked(unsafe_stack_allocation[COLUMNS, Int32, alignment=64]())
    var columns = wide.input
    comptime for part in range(3):
        comptime some = max(1, width >> part)
        # As wide as fit.
        if columns >= some and (part == 0 or columns < 2 * some):
            for begun in range(0, columns, some):
                # The last vector overlaps the one before it.
                var column = min(begun, columns - some)
                _max_of_column[some](maxima, places, plane, d, h, column, deep, high, wide.input)
    if columns < max(1, width >> 2):
        for column in range(columns):
            _max_of_column[1](maxima, places, plane, d, h, column, deep, high, wide.input)
    for x in range(wide.output):
        var w = wide.window[adaptive](x)
        var best = min_or_neg_inf[dtype]()
        var at = Int32((d[0] * high.input + h[0]) * wide.input + w[0])
        for k in range(w[0], w[1], wide.dilation):
            var value = maxima[unsafe_offset=k]
            var place = places[unsafe_offset=k]
            # The first maximum wins, and the last NaN.
            var better = (value > best) | ((value == best) & (place < at))
            comptime if dtype.is_floating_point():
                better |= isnan(value) & (not isnan(best) or place > at)
            best = value if better else best
            at = place if better else at
        values[unsafe_offset=x] = best
        positions[unsafe_offset=x] = Int64(at)


@always_inline
def max_row[
    dtype: DType, //, adaptive: Bool
](
    values: Address[dtype],
    positions: Address[DType.int64],
    plane: Address[dtype],
    od: Int,
    oh: Int,
    deep: Axis,
    high: Axis,
    wide: Axis,
):
    """Maxima of a row of windows and their positions in the plane."""
    var d = deep.window[adaptive](od)
    var h = high.window[adaptive](oh)
    var x = 0
    var small = deep.input * high.input * wide.input <= FARTHEST
    comptime if adaptive:
        if is_even(wide) and is_even(high) and is_even(deep):
            max_row[False](
                values, positions, plane, od, oh, even(deep), even(high), even(wide)
            )
            return
    else:
        var whole = inner(wide)
        comptime for part in range(3):
            # Narrower vectors for what has fewer windows.
            comptime some = max(1, width >> part)
            if small and wide.stride <= MOST_APART and whole[1] - whole[0] >= some:
                while x < wide.output:
                    if x < whole[0] or x >= whole[1]:
                        var found = max_of_window(plane, d, h, wide.strided(x), deep, high, wide)
                        values[unsafe_offset=x] = found[0]
                        positions[unsafe_offset=x] = Int64(found[1])
                        x += 1
                        continue
                    # The last vector overlaps the one before it.
                    var at = min(x, whole[1] - some)
                    var first = at * wide.stride - wide.padding
                    var to = values.unsafe_offset(at)
                    var into = positions.unsafe_offset(at)
                    comptime for step in range(1, MOST_APART + 1):
                        if wide.stride == step:
                            _max_of_windows[step, some](
                                to, into, plane, d, h, first, deep, high, wide
                            )
                    x = at + some
                return
    if small and wide.input <= COLUMNS:
        _max_by_columns[adaptive](values, positions, plane, d, h, deep, high, wide)
        return
    while x < wide.output:
        var found = max_of_window(plane, d, h, wide.window[adaptive](x), deep, high, wide)
        values[unsafe_offset=x] = found[0]
        positions[unsafe_offset=x] = Int64(found[1])
        x += 1
