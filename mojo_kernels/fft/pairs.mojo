"""Pairs of numbers, real parts first, to the planes that passes work on and back."""

from std.sys import simd_width_of

from ..core.memory import Address
from ..gemm.panels import transpose


@always_inline
def load_pairs[
    dtype: DType, //, lanes: Int
](x: Address[dtype], row: Int, n: Int, planes: Address[dtype], size: Int, swapped: Bool):
    """`n` pairs of each of `lanes` lines, `row` numbers apart, into planes whose
    second begins at `size`."""
    comptime width = simd_width_of[dtype]()
    var first = planes.unsafe_offset(size if swapped else 0)
    var second = planes.unsafe_offset(0 if swapped else size)
    var j = 0
    comptime if lanes == 1:
        while j + width <= n:
            var (re, im) = x.unsafe_load[width = 2 * width](2 * j).deinterleave()
            first.unsafe_store(j, rebind[SIMD[dtype, width]](re))
            second.unsafe_store(j, rebind[SIMD[dtype, width]](im))
            j += width
        while j < n:
            first[unsafe_offset=j] = x[unsafe_offset = 2 * j]
            second[unsafe_offset=j] = x[unsafe_offset = 2 * j + 1]
            j += 1
    else:
        var rows = Array[SIMD[dtype, lanes], lanes](fill=SIMD[dtype, lanes](0))
        while j + lanes // 2 <= n:
            comptime for lane in range(lanes):
                rows[lane] = x.unsafe_load[width=lanes](lane * row + 2 * j)
            transpose(rows)
            comptime for f in range(lanes // 2):
                first.unsafe_store((j + f) * lanes, rows[2 * f])
                second.unsafe_store((j + f) * lanes, rows[2 * f + 1])
            j += lanes // 2
        while j < n:
            for lane in range(lanes):
                var at = lane * row + 2 * j
                first[unsafe_offset = j * lanes + lane] = x[unsafe_offset=at]
                second[unsafe_offset = j * lanes + lane] = x[unsafe_offset = at + 1]
            j += 1


@always_inline
def store_pairs[
    dtype: DType, //, lanes: Int
](
    planes: Address[dtype],
    size: Int,
    n: Int,
    y: Address[dtype],
    row: Int,
    swapped: Bool,
    scale: Scalar[dtype],
):
    """The reverse of `load_pairs`, times `scale`."""
    comptime width = simd_width_of[dtype]()
    var first = planes.unsafe_offset(size if swapped else 0)
    var second = planes.unsafe_offset(0 if swapped else size)
    var j = 0
    comptime if lanes == 1:
        while j + width <= n:
            var re = first.unsafe_load[width=width](j) * scale
            var im = second.unsafe_load[width=width](j) * scale
            y.unsafe_store(2 * j, re.interleave(im))
            j += width
        while j < n:
            y[unsafe_offset = 2 * j] = first[unsafe_offset=j] * scale
            y[unsafe_offset = 2 * j + 1] = second[unsafe_offset=j] * scale
            j += 1
    else:
        var rows = Array[SIMD[dtype, lanes], lanes](fill=SIMD[dtype, lanes](0))
        while j + lanes // 2 <= n:
            comptime for f in range(lanes // 2):
                rows[2 * f] = first.unsafe_load[width=lanes]((j + f) * lanes) * scale
                rows[2 * f + 1] = second.unsafe_load[width=lanes]((j + f) * lanes) * scale
            transpose(rows)
            comptime for lane in range(lanes):
                y.unsafe_store(lane * row + 2 * j, rows[lane])
            j += lanes // 2
        while j < n:
            for lane in range(lanes):
                var at = lane * row + 2 * j
                y[unsafe_offset=at] = first[unsafe_offset = j * lanes + lane] * scale
                y[unsafe_offset = at + 1] = second[unsafe_offset = j * lanes + lane] * scale
            j += 1
