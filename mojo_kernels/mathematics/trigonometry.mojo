"""Trigonometric functions of float32 and float64, in SIMD.

Errors stay below 2 units in the last place for arguments of any size. Multiples of pi/2 are
subtracted in three parts (Cody and Waite, "Software manual for the elementary functions", 1980),
from large arguments after Payne and Hanek, "Radian reduction for trigonometric functions", 1983.
The polynomials are minimax approximations found by Remez' algorithm.
"""

from std.bit import count_leading_zeros
from std.memory import bitcast
from std.utils.numerics import inf, isnan, nan

from .doubled import (
    Doubled,
    exact_product,
    exact_sum,
    number,
    ordered_sum,
    polynomial,
    power_of_two,
    quotient,
    rounded_product,
)
from .single import Single, single_angle, single_sine, single_tangent

comptime HALF_PI = 1.570796326794896558
comptime HALF_PI_REST = 6.123233995736766036e-17
comptime HALF_PI_SINGLE = 1.57079637050628662109375
comptime HALF_PI_SINGLE_REST = -4.371138828673792887e-8

# The first 1,280 bits of 2/pi.
comptime TWO_OVER_PI: List[UInt64] = [
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
    0xF0CFBC209AF4361D,
]


@fieldwise_init
struct Reduced[dtype: DType, width: SIMDLength](
    ImplicitlyCopyable, RegisterPassable
):
    """`quadrant` quarter turns and an angle of an eighth at most, `hi + lo`."""

    var quadrant: SIMD[DType.int32, Self.width]
    var hi: SIMD[Self.dtype, Self.width]
    var lo: SIMD[Self.dtype, Self.width]


def _word(index: Int) -> UInt64:
    """Word `index - 1` of 2/pi. Picked by comparisons, since constants have no address on a GPU."""
    var result = UInt64(0)
    comptime for i in range(len(TWO_OVER_PI)):
        comptime word = TWO_OVER_PI[i]
        if index == i + 1:
            result = word
    return result


@no_inline
def _reduced_large(x: Float64) -> Reduced[DType.float64, 1]:
    """Of a finite number of at least 2**17: the fraction of `x * 2/pi`, from those bits of 2/pi
    that contribute neither multiples of 4 nor less than 2**-126."""
    var word = bitcast[DType.uint64, 1](abs(x))
    var mantissa = (word & 0xFFFFFFFFFFFFF) | 0x10000000000000
    # x = mantissa * 2**e, and bit p after 64 zeros and 2/pi's own counts 2**(63 - p).
    var e = Int(word >> 52) - 1075
    var first = e + 62
    var at = first // 64
    var shift = UInt64(first % 64)
    var w0 = _word(at)
    var w1 = _word(at + 1)
    var w2 = _word(at + 2)
    var w3 = _word(at + 3)
    var back = 63 - shift
    w0 = (w0 << shift) | ((w1 >> 1) >> back)
    w1 = (w1 << shift) | ((w2 >> 1) >> back)
    w2 = (w2 << shift) | ((w3 >> 1) >> back)
    # The upper two of three words of the product: two bits of whole, 126 of fraction.
    var low = (UInt128(mantissa) * UInt128(w2)) >> 64
    var product = low + UInt128(mantissa) * UInt128(w1)
    product += UInt128(mantissa * w0) << 64
    var quadrant = (product + (UInt128(1) << 125)) >> 126
    var rest = product - (quadrant << 126)
    var below = (rest >> 127) != 0
    if below:
        rest = 0 - rest
    var upper = UInt64(rest >> 64)
    var zeros = Int(count_leading_zeros(upper))
    if upper == 0:
        zeros = 64 + Int(count_leading_zeros(UInt64(rest & UInt128(UInt64.MAX))))
    rest = rest << UInt128(zeros)
    upper = UInt64(rest >> 64)
    var lower = UInt64(rest & UInt128(UInt64.MAX))
    var scale = power_of_two(Float64(-62 - zeros))
    var hi = (upper >> 11).cast[DType.float64]() * 2048.0 * scale
    var lo = ((upper << 53) | (lower >> 11)).cast[DType.float64]()
    lo = lo * (scale * 1.1102230246251565e-16)
    var angle = exact_product(hi, Float64(HALF_PI))
    angle.lo += hi * HALF_PI_REST + lo * HALF_PI
    angle = ordered_sum(angle.hi, angle.lo)
    var turns = Int32(Int(quadrant & 3))
    if below != (x < 0):
        angle = {-angle.hi, -angle.lo}
    return {-turns if x < 0 else turns, angle.hi, angle.lo}


@always_inline
def reduced_angle[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> Reduced[dtype, width]:
    """`x` less a multiple of pi/2; NaN of infinity."""
    comptime two_over_pi = 0.6366197723675814
    var n = (x * number[dtype, width](two_over_pi, two_over_pi)).__round__()
    # Exact: what is left has no more digits than x.
    var first = (-n).fma(number[dtype, width](HALF_PI_SINGLE, HALF_PI), x)
    var second = exact_product(
        n, number[dtype, width](HALF_PI_SINGLE_REST, HALF_PI_REST)
    )
    var rest = exact_sum(first, -second.hi)
    var low = rest.lo - n.fma(
        number[dtype, width](-1.715124510005881872e-15, -1.4973849048591698e-33),
        second.lo,
    )
    var angle = ordered_sum(rest.hi, low)
    var result = Reduced(n.cast[DType.int32](), angle.hi, angle.lo)
    var size = abs(x)
    var large = size.gt(number[dtype, width](131072, 33554432)) & size.lt(
        SIMD[dtype, width](inf[dtype]())
    )
    if large.reduce_or():
        for i in range(Int(width)):
            if large[i]:
                var lane = _reduced_large(x[i].cast[DType.float64]())
                var hi = lane.hi.cast[dtype]()
                result.quadrant[i] = lane.quadrant
                result.hi[i] = hi
                var left = lane.hi - hi.cast[DType.float64]()
                result.lo[i] = (left + lane.lo).cast[dtype]()
    return result


@always_inline
def _sine[
    dtype: DType, width: SIMDLength, //
](r: Reduced[dtype, width], z: SIMD[dtype, width]) -> Doubled[dtype, width]:
    """Of the angle alone, whose square is `z`; the low part does not overlap."""
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[-0.1666665307, 0.008332058237, -0.0001950095598](z)
    else:
        p = polynomial[
            -0.166666666666666201,
            0.00833333333331936741,
            -0.000198412698273155805,
            2.75573128129165765e-6,
            -2.5050618770409223e-8,
            1.58886444986062958e-10,
        ](z)
    return {r.hi, (r.hi * z).fma(p, r.lo.fma(z * -0.5, r.lo))}


@always_inline
def _cosine[
    dtype: DType, width: SIMDLength, //
](r: Reduced[dtype, width], z: SIMD[dtype, width]) -> Doubled[dtype, width]:
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[0.04166664372, -0.001388721057, 2.442023135e-5](z)
    else:
        p = polynomial[
            0.0416666666666665765,
            -0.00138888888888700285,
            0.0000248015872868635667,
            -2.75573135817006008e-7,
            2.08756169990943454e-9,
            -1.13540839401976183e-11,
        ](z)
    var half = z * 0.5
    var hi = 1 - half
    return {hi, ((1 - hi) - half) + (z * z).fma(p, -(r.hi * r.lo))}


@always_inline
def _sine_of_quadrant[
    dtype: DType, width: SIMDLength, //
](r: Reduced[dtype, width], quadrant: SIMD[DType.int32, width]) -> SIMD[
    dtype, width
]:
    var z = rounded_product(r.hi, r.hi)
    var s = _sine(r, z)
    var c = _cosine(r, z)
    var result = (quadrant & 1).ne(0).select(c.hi + c.lo, s.hi + s.lo)
    return (quadrant & 2).ne(0).select(-result, result)


@always_inline
def _any_large[dtype: DType, width: SIMDLength, //](x: SIMD[dtype, width]) -> Bool:
    """Whether float32's own reduction does not reach any of these."""
    return abs(x).gt(131000).reduce_or()


@always_inline
def sin[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime tiny = number[dtype, width](1e-9, 1e-18)
    comptime if dtype == DType.float32:
        if not _any_large(x):
            var angle = single_angle(rebind[Single[width]](x))
            var sine = single_sine(angle, angle.quadrant)
            return abs(x).lt(tiny).select(x, rebind[SIMD[dtype, width]](sine))
    var r = reduced_angle(x)
    var result = _sine_of_quadrant(r, r.quadrant)
    return abs(x).lt(tiny).select(x, result)


@always_inline
def cos[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if dtype == DType.float32:
        if not _any_large(x):
            var angle = single_angle(rebind[Single[width]](x))
            var cosine = single_sine(angle, angle.quadrant + 1)
            return rebind[SIMD[dtype, width]](cosine)
    var r = reduced_angle(x)
    return _sine_of_quadrant(r, r.quadrant + 1)


@always_inline
def tan[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime tiny = number[dtype, width](1e-9, 1e-18)
    comptime if dtype == DType.float32:
        if not _any_large(x):
            var tangent = single_tangent(single_angle(rebind[Single[width]](x)))
            return abs(x).lt(tiny).select(x, rebind[SIMD[dtype, width]](tangent))
    var r = reduced_angle(x)
    var z = rounded_product(r.hi, r.hi)
    var s = _sine(r, z)
    var c = _cosine(r, z)
    var odd = (r.quadrant & 1).ne(0)
    var above = Doubled(odd.select(-c.hi, s.hi), odd.select(-c.lo, s.lo))
    var below = ordered_sum(odd.select(s.hi, c.hi), odd.select(s.lo, c.lo))
    var q = quotient(ordered_sum(above.hi, above.lo), below)
    return abs(x).lt(tiny).select(x, q.hi + q.lo)


@always_inline
def sinc[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """As sin(pi x) / (pi x), and 1 at 0."""
    comptime one = SIMD[dtype, width](1)
    var halves = (2 * x).__round__()
    # Beyond, all numbers are even.
    var even = abs(x).ge(number[dtype, width](16777216, 9007199254740992))
    var bounded = even.select(SIMD[dtype, width](0), halves)
    var r = bounded.fma(SIMD[dtype, width](-0.5), x)
    var hi = number[dtype, width](3.1415927410125732421875, 3.141592653589793116)
    var lo = number[dtype, width](-8.74227800037248566e-8, 1.2246467991473531772e-16)
    var angle = exact_product(r, hi)
    var quarter = (bounded * 0.25).__floor__()
    var quadrant = (bounded - quarter * 4).cast[DType.int32]()
    var reduced = Reduced(quadrant, angle.hi, r.fma(lo, angle.lo))
    var sine = _sine_of_quadrant(reduced, quadrant)
    var whole = exact_product(even.select(one, x), hi)
    whole.lo += x * lo
    var q = quotient(Doubled(sine, SIMD[dtype, width](0)), whole)
    var result = even.select(SIMD[dtype, width](0), q.hi + q.lo)
    result = abs(x).lt(number[dtype, width](1e-4, 1e-9)).select(one, result)
    var lost = isnan(x) | abs(x).eq(SIMD[dtype, width](inf[dtype]()))
    return lost.select(SIMD[dtype, width](nan[dtype]()), result)
