"""Maxima of one row of windows on a CPU when nobody asks where they are: those of columns first,
then of neighbouring columns, a vector of either at a time."""

from std.memory import unsafe_stack_allocation
from std.sys import simd_width_of
from std.utils.numerics import isnan, min_or_neg_inf

from ..core.memory import Address, untracked
from ..core.vectors import MOST_APART, every
from .window import Axis, even, inner, is_even

# Columns whose maxima wait on the stack.
comptime COLUMNS = 1024


@always_inline
def _larger[
    dtype: DType, //, width: Int
](value: SIMD[dtype, width], best: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """The first of equal values, which `best` is; NaN wins over all."""
    var better = value.gt(best)
    comptime if dtype.is_floating_point():
        better = better | isnan(value)
    return better.select(value, best)


@always_inline
def _down[
    dtype: DType, //, width: Int
](
    plane: Address[dtype], d: Tuple[Int, Int], h: Tuple[Int, Int], deep: Axis, high: Axis, row: Int
) -> SIMD[dtype, width]:
    """The maxima of `width` columns, the first of which is that of `plane`, of size `row`."""
    var best = SIMD[dtype, width](min_or_neg_inf[dtype]())
    for i in range(d[0], d[1], deep.dilation):
        for j in range(h[0], h[1], high.dilation):
            var line = (i * high.input + j) * row
            best = _larger[width](plane.unsafe_load[width=width](line), best)
    return best


@always_inline
def _along[
    dtype: DType, //, stride: Int, width: Int
](line: Address[dtype], wide: Axis) -> SIMD[dtype, width]:
    """The maxima of `width` windows, of which the first begins at `line`."""
    var best = SIMD[dtype, width](min_or_neg_inf[dtype]())
    for k in range(0, wide.kernel * wide.dilation, wide.dilation):
        best = _larger[width](every[stride, width](line.unsafe_offset(k)), best)
    return best


@no_inline
def _columns[
    dtype: DType, //
](
    to: Address[dtype],
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    deep: Axis,
    high: Axis,
    row: Int,
    count: Int,
):
    """The maxima of `count` columns, the first of which is that of `plane`."""
    comptime for part in range(3):
        comptime some = max(1, simd_width_of[dtype]() >> part)
        # As wide as fit.
        if count >= some:
            for begun in range(0, count, some):
                # The last vector overlaps the one before it.
                var x = min(begun, count - some)
                to.unsafe_store(x, _down[some](plane.unsafe_offset(x), d, h, deep, high, row))
            return
    for x in range(count):
        to[unsafe_offset=x] = _down[1](plane.unsafe_offset(x), d, h, deep, high, row)


@always_inline
def _whole_windows[
    dtype: DType, //
](values: Address[dtype], line: Address[dtype], wide: Axis, first: Int, end: Int) -> Bool:
    """The maxima of windows whose taps are all in the line, from whose `first` position on `line`
    lies; whether there are vectors for them."""
    if wide.stride > MOST_APART:
        return False
    comptime for part in range(3):
        comptime some = max(1, simd_width_of[dtype]() >> part)
        if end - first >= some:
            for begun in range(first, end, some):
                var x = min(begun, end - some)
                var at = line.unsafe_offset((x - first) * wide.stride)
                comptime for step in range(1, MOST_APART + 1):
                    if wide.stride == step:
                        values.unsafe_store(x, _along[step, some](at, wide))
            return True
    return False


@no_inline
def _windows[
    dtype: DType, //, adaptive: Bool
](values: Address[dtype], line: Address[dtype], origin: Int, wide: Axis, first: Int, end: Int):
    """The maxima of windows `first` to `end` of a line, whose numbers from position `origin` on
    are at `line`."""
    var x = first
    var whole = (end, end)
    comptime if not adaptive:
        var found = inner(wide)
        whole = (max(first, found[0]), min(end, found[1]))
    while x < end:
        if x == whole[0] and x < whole[1]:
            var at = line.unsafe_offset(x * wide.stride - wide.padding - origin)
            if _whole_windows(values, at, wide, x, whole[1]):
                x = whole[1]
                continue
        var w = wide.window[adaptive](x)
        var best = min_or_neg_inf[dtype]()
        for k in range(w[0], w[1], wide.dilation):
            best = _larger[1](line[unsafe_offset = k - origin], best)
        values[unsafe_offset=x] = best
        x += 1


@always_inline
def _end_of_block[adaptive: Bool](wide: Axis, first: Int, origin: Int) -> Int:
    """The windows from `first` on that `COLUMNS` columns from `origin` on hold."""
    if wide.input - origin <= COLUMNS:
        return wide.output
    var end = first
    while end < wide.output and wide.window[adaptive](end)[1] - origin <= COLUMNS:
        end += 1
    return end


@always_inline
def largest_row[
    dtype: DType, //, adaptive: Bool
](
    values: Address[dtype],
    plane: Address[dtype],
    od: Int,
    oh: Int,
    deep: Axis,
    high: Axis,
    wide: Axis,
):
    """Maxima of a row of windows."""
    comptime if adaptive:
        if is_even(wide) and is_even(high) and is_even(deep):
            largest_row[False](values, plane, od, oh, even(deep), even(high), even(wide))
            return
    var d = deep.window[adaptive](od)
    var h = high.window[adaptive](oh)
    var one = d[1] > d[0] and d[1] - d[0] <= deep.dilation
    if one and h[1] > h[0] and h[1] - h[0] <= high.dilation:
        # One line of taps.
        var line = plane.unsafe_offset((d[0] * high.input + h[0]) * wide.input)
        _windows[adaptive](values, line, 0, wide, 0, wide.output)
        return
    var maxima = untracked(unsafe_stack_allocation[COLUMNS, Scalar[dtype], alignment=64]())
    var first = 0
    while first < wide.output:
        # Later windows of a dilated row may begin before this one does.
        var origin = wide.window[adaptive](first)[0]
        comptime if not adaptive:
            origin = max(0, first * wide.stride - wide.padding)
        var end = _end_of_block[adaptive](wide, first, origin)
        if end == first:
            # Wider than the columns there is room for.
            var w = wide.window[adaptive](first)
            var best = min_or_neg_inf[dtype]()
            for k in range(w[0], w[1], wide.dilation):
                var column = plane.unsafe_offset(k)
                best = _larger[1](_down[1](column, d, h, deep, high, wide.input), best)
            values[unsafe_offset=first] = best
            first += 1
            continue
        var count = wide.window[adaptive](end - 1)[1] - origin
        _columns(maxima, plane.unsafe_offset(origin), d, h, deep, high, wide.input, count)
        _windows[adaptive](values, maxima, origin, wide, first, end)
        first = end
