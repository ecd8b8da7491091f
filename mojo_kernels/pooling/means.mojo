"""Means of one row of windows on a CPU, and their gradient: small windows a vector of neighbours at a
time, others from the sums down their columns."""

from std.bit import log2_floor
from std.math import ceildiv
from std.memory import unsafe_memset_zero, unsafe_stack_allocation
from std.sys import simd_width_of, size_of

from ..core.memory import Address, untracked
from ..core.vectors import every
from .window import Axis, even, inner, is_even

comptime width = simd_width_of[DType.float32]()
# Columns whose sums wait on the stack.
comptime COLUMNS = 512


@always_inline
def sum_of_window[
    dtype: DType
](
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    w: Tuple[Int, Int],
    high: Axis,
    wide: Axis,
) -> Scalar[dtype]:
    """The sum between first and end positions."""
    var sum = Scalar[dtype](0)
    for i in range(d[0], d[1]):
        for j in range(h[0], h[1]):
            var row = (i * high.input + j) * wide.input
            for k in range(w[0], w[1]):
                sum += plane[unsafe_offset=row + k]
    return sum


@always_inline
def _sum_of_windows[
    dtype: DType, //, stride: Int, width: Int
](
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    first: Int,
    high: Axis,
    wide: Axis,
) -> SIMD[dtype, width]:
    """The sums of `width` windows, of which the first begins at column `first`."""
    var sum = SIMD[dtype, width](0)
    for i in range(d[0], d[1]):
        for j in range(h[0], h[1]):
            var row = plane.unsafe_offset((i * high.input + j) * wide.input + first)
            for k in range(wide.kernel):
                sum += every[stride, width](row.unsafe_offset(k))
    return sum


@always_inline
def _sum_of_columns[
    dtype: DType, //
](
    columns: Address[dtype],
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    first: Int,
    count: Int,
    high: Axis,
    wide: Axis,
):
    """The sums down the windows of each of `count` columns from `first` on."""
    var x = 0
    comptime for part in range(log2_floor(width) + 1):
        # Narrower vectors for the last columns.
        comptime some = width >> part
        while x + some <= count:
            var sum = SIMD[dtype, some](0)
            for i in range(d[0], d[1]):
                for j in range(h[0], h[1]):
                    var row = (i * high.input + j) * wide.input
                    sum += plane.unsafe_load[width=some](row + first + x)
            columns.unsafe_store(x, sum)
            x += some


@always_inline
def _sum_row_by_columns[
    dtype: DType, //, adaptive: Bool
](
    sums: Address[dtype],
    plane: Address[dtype],
    d: Tuple[Int, Int],
    h: Tuple[Int, Int],
    high: Axis,
    wide: Axis,
):
    """Sums of a row of windows: columns are added up first, once for all windows."""
    var columns = unsafe_stack_allocation[COLUMNS, Scalar[dtype], alignment=64]()
    var to = untracked(columns)
    var x = 0
    while x < wide.output:
        var first = wide.window[adaptive](x)[0]
        var end = x
        var last = first
        while end < wide.output and wide.window[adaptive](end)[1] - first <= COLUMNS:
            last = max(last, wide.window[adaptive](end)[1])
            end += 1
        if end == x:
            # Wider than the columns there is room for.
            sums[unsafe_offset=x] = sum_of_window(
                plane, d, h, wide.window[adaptive](x), high, wide
            )
            x += 1
            continue
        _sum_of_columns(to, plane, d, h, first, last - first, high, wide)
        while x < end:
            var w = wide.window[adaptive](x)
            var sum = Scalar[dtype](0)
            for k in range(w[0] - first, w[1] - first):
                sum += to[unsafe_offset=k]
            sums[unsafe_offset=x] = sum
            x += 1


@always_inline
def sum_row[
    dtype: DType, //, adaptive: Bool
](
    sums: Address[dtype],
    plane: Address[dtype],
    od: Int,
    oh: Int,
    deep: Axis,
    high: Axis,
    wide: Axis,
):
    """Sums of a row of windows."""
    var d = deep.window[adaptive](od)
    var h = high.window[adaptive](oh)
    comptime if not adaptive:
        var whole = inner(wide)
        comptime for part in range(3):
            # Narrower vectors for what has fewer windows.
            comptime some = max(1, width >> part)
            if wide.stride <= 2 and wide.kernel <= 3 and whole[1] - whole[0] >= some:
                var x = 0
                while x < wide.output:
                    if x < whole[0] or x >= whole[1]:
                        sums[unsafe_offset=x] = sum_of_window(
                            plane, d, h, wide.strided(x), high, wide
                        )
                        x += 1
                        continue
                    # The last vector overlaps the one before it.
                    var at = min(x, whole[1] - some)
                    var first = at * wide.stride - wide.padding
                    var sum: SIMD[dtype, some]
                    if wide.stride == 1:
                        sum = _sum_of_windows[1, some](plane, d, h, first, high, wide)
                    else:
                        sum = _sum_of_windows[2, some](plane, d, h, first, high, wide)
                    sums.unsafe_store(at, sum)
                    x = at + some
                return
    _sum_row_by_columns[adaptive](sums, plane, d, h, high, wide)


@always_inline
def mean_row[
    dtype: DType, //, adaptive: Bool, count_padding: Bool
](
    means: Address[dtype],
    plane: Address[dtype],
    od: Int,
    oh: Int,
    deep: Axis,
    high: Axis,
    wide: Axis,
    fixed: Int,
):
    """Means of a row of windows; `fixed` replaces the element count unless it is 0."""
    comptime if adaptive:
        if is_even(deep) and is_even(high) and is_even(wide):
            mean_row[False, False](
                means, plane, od, oh, even(deep), even(high), even(wide), fixed
            )
            return
    sum_row[adaptive](means, plane, od, oh, deep, high, wide)
    divide_row[adaptive, count_padding](means, means, od, oh, deep, high, wide, fixed)


@always_inline
def divide_row[
    dtype: DType, //, adaptive: Bool, count_padding: Bool
](
    to: Address[dtype],
    sums: Address[dtype],
    od: Int,
    oh: Int,
    deep: Axis,
    high: Axis,
    wide: Axis,
    fixed: Int,
):
    """What belongs to each of a row of windows, divided by its element count."""
    var x = 0
    comptime if dtype.is_floating_point():
        # The windows that have the same size.
        var same = (0, 0)
        comptime if not adaptive:
            same = inner(wide)
        var count = fixed
        if fixed == 0:
            count = wide.kernel
            comptime if count_padding:
                count *= deep.padded_size(od) * high.padded_size(oh)
            else:
                var d = deep.window[adaptive](od)
                var h = high.window[adaptive](oh)
                count *= (d[1] - d[0]) * (h[1] - h[0])
        else:
            same = (0, wide.output)
        while x < same[0]:
            to[unsafe_offset=x] = mean[adaptive, count_padding](
                sums[unsafe_offset=x], od, oh, x, deep, high, wide, fixed
            )
            x += 1
        comptime for part in range(log2_floor(width) + 1):
            comptime some = width >> part
            while x + some <= same[1]:
                to.unsafe_store(
                    x, sums.unsafe_load[width=some](x) / SIMD[dtype, some](Scalar[dtype](count))
                )
                x += some
    while x < wide.output:
        to[unsafe_offset=x] = mean[adaptive, count_padding](
            sums[unsafe_offset=x], od, oh, x, deep, high, wide, fixed
        )
        x += 1


@always_inline
def mean[
    dtype: DType, //, adaptive: Bool, count_padding: Bool
](
    sum: Scalar[dtype],
    od: Int,
    oh: Int,
    ow: Int,
    deep: Axis,
    high: Axis,
    wide: Axis,
    fixed: Int,
) -> Scalar[dtype]:
    """The sum of one window divided by its element count, or by `fixed` unless that is 0."""
    var count = fixed
    if fixed == 0:
        comptime if count_padding:
            count = deep.padded_size(od) * high.padded_size(oh) * wide.padded_size(ow)
        else:
            var d = deep.window[adaptive](od)
            var h = high.window[adaptive](oh)
            var w = wide.window[adaptive](ow)
            count = (d[1] - d[0]) * (h[1] - h[0]) * (w[1] - w[0])
    comptime if dtype.is_floating_point():
        return sum / Scalar[dtype](count)
    else:
        # Towards zero, as in C.
        var size = Scalar[dtype](abs(count))
        var mean = sum // size if sum >= 0 else -((-sum) // size)
        return mean if count > 0 else -mean


@always_inline
def spread_plane[
    dtype: DType, //, adaptive: Bool, count_padding: Bool
](
    plane: Address[dtype],
    gradient: Address[dtype],
    deep: Axis,
    high: Axis,
    wide: Axis,
    fixed: Int,
):
    """The gradient of the means of one plane: each window's, divided by its element count, is
    added to all of its elements."""
    comptime if adaptive:
        if is_even(deep) and is_even(high) and is_even(wide):
            spread_plane[False, False](
                plane, gradient, even(deep), even(high), even(wide), fixed
            )
            return
    var size = deep.input * high.input * wide.input
    unsafe_memset_zero(plane.unsafe_bitcast[UInt8](), size * size_of[dtype]())
    # What each output gives one element, and what a row of outputs gives each column.
    var shares = List[Scalar[dtype]](length=wide.output, fill=0)
    var columns = List[Scalar[dtype]](length=wide.input, fill=0)
    var share = untracked(shares.unsafe_ptr())
    var column = untracked(columns.unsafe_ptr())
    for od in range(deep.output):
        var d = deep.window[adaptive](od)
        for oh in range(high.output):
            var h = high.window[adaptive](oh)
            divide_row[adaptive, count_padding](
                share,
                gradient.unsafe_offset((od * high.output + oh) * wide.output),
                od,
                oh,
                deep,
                high,
                wide,
                fixed,
            )
            _spread_row[adaptive](column, share, wide)
            for i in range(d[0], d[1]):
                for j in range(h[0], h[1]):
                    _add(
                        plane.unsafe_offset((i * high.input + j) * wide.input),
                        column,
                        wide.input,
                    )
    _ = shares^
    _ = columns^


@always_inline
def _spread_row[
    dtype: DType, //, adaptive: Bool
](column: Address[dtype], share: Address[dtype], wide: Axis):
    """Adds up, for each column, the shares of the windows that hold it."""
    for x in range(wide.input):
        column[unsafe_offset=x] = 0
    comptime if adaptive:
        for x in range(wide.output):
            var w = wide.adaptive(x)
            for k in range(w[0], w[1]):
                column[unsafe_offset=k] += share[unsafe_offset=x]
    else:
        # Neighbouring windows hold different columns at the same place.
        for k in range(wide.kernel):
            var shift = k - wide.padding
            var first = ceildiv(max(0, -shift), wide.stride)
            var end = min(wide.output, ceildiv(wide.input - shift, wide.stride))
            if wide.stride == 1:
                if end > first:
                    _add(
                        column.unsafe_offset(first + shift),
                        share.unsafe_offset(first),
                        end - first,
                    )
                continue
            for x in range(first, end):
                column[unsafe_offset = x * wide.stride + shift] += share[unsafe_offset=x]


@always_inline
def _add[dtype: DType, //](to: Address[dtype], more: Address[dtype], count: Int):
    var x = 0
    comptime for part in range(log2_floor(width) + 1):
        comptime some = width >> part
        while x + some <= count:
            to.unsafe_store(x, to.unsafe_load[width=some](x) + more.unsafe_load[width=some](x))
            x += some
