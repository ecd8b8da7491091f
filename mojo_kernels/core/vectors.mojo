"""Vectors of numbers that do not lie side by side, and parts of vectors."""

from std.bit import log2_floor
from std.math import iota
from std.sys import simd_width_of

from .memory import Address



@always_inline
def every[
    dtype: DType, //, stride: Int, width: Int = simd_width_of[dtype]()
](source: Address[dtype]) -> SIMD[dtype, width]:
    """`width` numbers that lie `stride` apart, 1 or 2; no memory past the last is read."""
    comptime if stride == 1 or width == 1:
        return source.unsafe_load[width=width](0)
    else:
        comptime assert stride == 2, "other strides have no vectors"
        var low = source.unsafe_load[width=width](0).deinterleave()[0]
        var high = source.unsafe_load[width=width](width - 1).deinterleave()[1]
        return rebind[SIMD[dtype, width]](low.join(high))


@always_inline
def below[width: Int](count: Int) -> SIMD[DType.bool, width]:
    """The lanes with a number less than `count`."""
    return iota[DType.int32, width]().lt(Int32(count))


@always_inline
def totals[
    dtype: DType, width: Int, count: Int, //, some: Int
](sums: Array[SIMD[dtype, width], count], start: Int) -> SIMD[dtype, some]:
    """The sums of `some` vectors from `start` on, side by side."""
    # Interleaving two vectors and adding the halves keeps both sums apart, in half as many lanes.
    var parts = Array[SIMD[dtype, width], some](fill=SIMD[dtype, width](0))
    comptime for i in range(some):
        parts[i] = sums[start + i]
    comptime for round in range(log2_floor(some)):
        comptime half = some >> (round + 1)
        comptime for i in range(half):
            var both = parts[i].interleave(parts[i + half])
            parts[i] = both.slice[width, offset=0]() + both.slice[width, offset=width]()
    var total = parts[0]
    comptime if some == width:
        return rebind[SIMD[dtype, some]](total)
    else:
        # Lanes `some` apart belong to the same vector.
        var result = total.slice[some, offset=0]()
        comptime for i in range(some, width, some):
            result += total.slice[some, offset=i]()
        return result
