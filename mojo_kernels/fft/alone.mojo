"""A long line by itself: its first pass reads pairs, and the last one may write pairs."""

from std.sys import simd_width_of

from ..core.memory import Address
from .butterflies import Lanes, butterfly
from .pairs import store_pairs
from .passes import any_pass, loaded, turned_and_woven, twiddles_of
from .roots import Plan


@no_inline
def _first[
    dtype: DType, //, swapped: Bool
](x: Address[dtype], y: Address[dtype], size: Int, table: Address[dtype]):
    """The pass of radix 16, from pairs to planes."""
    comptime width = simd_width_of[dtype]()
    var p = _butterflies[width, swapped](x, y, size, table, 0)
    comptime if width > 4:
        p = _butterflies[4, swapped](x, y, size, table, p)
    _ = _butterflies[1, swapped](x, y, size, table, p)


@always_inline
def _butterflies[
    dtype: DType, //, width: Int, swapped: Bool
](x: Address[dtype], y: Address[dtype], size: Int, table: Address[dtype], start: Int) -> Int:
    """`width` of the first pass at a time; returns where it has stopped."""
    var m = size // 16
    var re = Lanes[dtype, width, 16](fill=0)
    var im = Lanes[dtype, width, 16](fill=0)
    var p = start
    while p + width <= m:
        comptime for k in range(16):
            var pair = x.unsafe_load[width = 2 * width](2 * (p + k * m)).deinterleave()
            re[k] = rebind[SIMD[dtype, width]](pair[1 if swapped else 0])
            im[k] = rebind[SIMD[dtype, width]](pair[0 if swapped else 1])
        butterfly[dtype, width, 16](re, im)
        turned_and_woven(re, im, table, m, p, y, y.unsafe_offset(size))
        p += width
    return p


@no_inline
def _last[
    dtype: DType, //, radix: Int, swapped: Bool
](x: Address[dtype], size: Int, y: Address[dtype], scale: Scalar[dtype]):
    """The pass over what is left of a length, `radix`, from planes to pairs."""
    comptime width = simd_width_of[dtype]()
    var stride = size // radix
    var re = Lanes[dtype, width, radix](fill=0)
    var im = Lanes[dtype, width, radix](fill=0)
    for q in range(0, stride, width):
        loaded[radix, width](x.unsafe_offset(q), x.unsafe_offset(size + q), stride, re, im)
        comptime for k in range(radix):
            var r = re[k] * scale
            var i = im[k] * scale
            y.unsafe_store(2 * (q + k * stride), i.interleave(r) if swapped else r.interleave(i))


@always_inline
def transform_pairs[
    dtype: DType, //, to_pairs: Bool
](
    plan: Plan,
    x: Address[dtype],
    y: Address[dtype],
    a: Address[dtype],
    b: Address[dtype],
    table: Address[dtype],
    swapped: Bool,
    scale: Scalar[dtype],
) -> Address[dtype]:
    """The transform of the pairs in `x`, for a plan of a line by itself: to pairs in `y`, times
    `scale`, or to the planes that are returned, `a` or `b`. Of pairs that are `swapped`, so that
    they are the inverse's."""
    if swapped:
        _first[True](x, b, plan.n, table)
    else:
        _first[False](x, b, plan.n, table)
    var length = plan.n // 16
    var stride = 16
    var twiddles = table.unsafe_offset(twiddles_of(16, plan.n))
    var from_ = b
    var to = a
    while length > 1:
        var radix = plan.radix(length)
        comptime if to_pairs:
            comptime for last in range(4, 9, 4):
                if length == last:
                    if swapped:
                        _last[last, True](from_, plan.n, y, scale)
                    else:
                        _last[last, False](from_, plan.n, y, scale)
                    return y
        any_pass(radix, from_, to, plan.n, twiddles, length // radix, stride)
        twiddles = twiddles.unsafe_offset(twiddles_of(radix, length))
        stride *= radix
        length //= radix
        swap(from_, to)
    comptime if to_pairs:
        store_pairs[1](from_, plan.n, plan.n, y, 2 * plan.n, swapped, scale)
    return from_
