"""Vectors of numbers that do not lie side by side, and parts of vectors."""

from std.math import iota
from std.sys import simd_width_of

from .panels import Address


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
