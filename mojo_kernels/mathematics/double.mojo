"""Elementary functions of float64 lanes that special functions are made of.

Plain arithmetic and bit patterns, so that they compile for every target. Errors are below one unit
in the last place, or a little more.
"""

from std.math import floor, sqrt
from std.memory import bitcast
from std.utils.numerics import inf, isnan, nan

comptime PI = 3.14159265358979323846
comptime HALF_LOG_2PI = 0.91893853320467274178
comptime INF = inf[DType.float64]()
comptime NAN = nan[DType.float64]()

comptime _LN2_HIGH = 0.6931471805598903
comptime _LN2_LOW = 5.497923018708371e-14
comptime _WHOLE = 6755399441055744.0  # 1.5 * 2**52: adding it leaves a whole number in the low bits
comptime _EXPONENT_BITS = 0x4330000000000000  # 2**52


@always_inline
def horner[
    coefficients: List[Float64], w: SIMDLength
](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The polynomial of these coefficients, the highest power first."""
    comptime first = coefficients[0]
    var r = SIMD[DType.float64, w](first)
    comptime for i in range(1, len(coefficients)):
        comptime c = coefficients[i]
        r = r.fma(x, SIMD[DType.float64, w](c))
    return r


@always_inline
def chebyshev_sum[
    coefficients: List[Float64], w: SIMDLength
](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """Clenshaw's sum of c_k T_k(x / 2), c_0 halved; the highest k first."""
    comptime first = coefficients[0]
    var b0 = SIMD[DType.float64, w](first)
    var b1 = SIMD[DType.float64, w](0)
    var b2 = SIMD[DType.float64, w](0)
    comptime for i in range(1, len(coefficients)):
        comptime c = coefficients[i]
        b2 = b1
        b1 = b0
        b0 = x.fma(b1, SIMD[DType.float64, w](c) - b2)
    return 0.5 * (b0 - b2)


@always_inline
def _power_of_two[w: SIMDLength](k: SIMD[DType.int64, w]) -> SIMD[DType.float64, w]:
    return bitcast[DType.float64, w]((k + 1023) << 52)


# 1/13!, ..., 1/2!
comptime _EXP: List[Float64] = [
    1.6059043836821613e-10,
    2.08767569878681e-09,
    2.505210838544172e-08,
    2.755731922398589e-07,
    2.7557319223985893e-06,
    2.48015873015873e-05,
    0.0001984126984126984,
    0.001388888888888889,
    0.008333333333333333,
    0.041666666666666664,
    0.16666666666666666,
    0.5,
]


@always_inline
def exp64[
    w: SIMDLength
](x: SIMD[DType.float64, w], low: SIMD[DType.float64, w] = 0) -> SIMD[DType.float64, w]:
    """`e ** (x + low)`, `low` being what `x` was rounded by."""
    var bounded = x.clamp(-746, 710)
    var shifted = bounded.fma(SIMD[DType.float64, w](1.4426950408889634), _WHOLE)
    var k = shifted - _WHOLE
    var r = k.fma(SIMD[DType.float64, w](-_LN2_HIGH), bounded)
    r = k.fma(SIMD[DType.float64, w](-_LN2_LOW), r) + low
    var result = (r * r).fma(horner[_EXP](r), r) + 1
    var exponent = bitcast[DType.int64, w](shifted) - bitcast[DType.int64, 1](
        Float64(_WHOLE)
    )
    # In two steps, since the power of two alone may be out of range.
    var half = exponent >> 1
    result = result * _power_of_two(half) * _power_of_two(exponent - half)
    result = x.gt(709.79).select(SIMD[DType.float64, w](INF), result)
    return isnan(x).select(x, result)


# 2/25, 2/23, ..., 2/3
comptime _LOG: List[Float64] = [
    0.08,
    0.08695652173913043,
    0.09523809523809523,
    0.10526315789473684,
    0.11764705882352941,
    0.13333333333333333,
    0.15384615384615385,
    0.18181818181818182,
    0.2222222222222222,
    0.2857142857142857,
    0.4,
    0.6666666666666666,
]


@always_inline
def log_pair[
    w: SIMDLength
](x: SIMD[DType.float64, w]) -> Tuple[SIMD[DType.float64, w], SIMD[DType.float64, w]]:
    """The logarithm of positive finite numbers as the sum of two; 2 artanh((m - 1) / (m + 1))."""
    comptime F = SIMD[DType.float64, w]
    var small = x.lt(2.2250738585072014e-308)
    var scaled = small.select(x * 18014398509481984.0, x)
    var bits = bitcast[DType.int64, w](scaled)
    var m = bitcast[DType.float64, w]((bits & 0xFFFFFFFFFFFFF) | 0x3FF0000000000000)
    var e = bitcast[DType.float64, w]((bits >> 52) | _EXPONENT_BITS) - (
        4503599627370496.0 + 1023
    )
    e -= small.select(F(54), F(0))
    var upper = m.gt(1.4142135623730951)
    m = upper.select(m * 0.5, m)
    e += upper.select(F(1), F(0))
    var f = m - 1
    var d = m + 1
    var s = f / d
    # What the quotient and its divisor were rounded by.
    var s_low = ((-s).fma(d, f) - s * (m - (d - 1))) / d
    var s2 = s * s
    var rest = (s2 * s).fma(horner[_LOG](s2), 2 * s_low)
    var high = e * _LN2_HIGH
    var total = high + 2 * s
    rest = e.fma(F(_LN2_LOW), rest) + (2 * s - (total - high))
    var sum = total + rest
    return (sum, rest - (sum - total))


@always_inline
def _at_edges[
    w: SIMDLength
](x: SIMD[DType.float64, w], result: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The logarithm where it is not finite."""
    comptime F = SIMD[DType.float64, w]
    var edge = x.eq(0).select(F(-INF), x.lt(0).select(F(NAN), result))
    return (x.eq(INF) | isnan(x)).select(x, edge)


@always_inline
def log64[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    var high, low = log_pair(x)
    return _at_edges(x, high + low)


@always_inline
def log1p64[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    comptime F = SIMD[DType.float64, w]
    var u = x + 1
    # What the sum was rounded by.
    var lost = x.gt(1).select(1 - (u - x), x - (u - 1))
    lost = (abs(x).lt(4e15) & u.ne(0)).select(lost, F(0))
    var high, low = log_pair(u)
    return _at_edges(u, high + (low + lost / u.eq(0).select(F(1), u)))


@always_inline
def pow64[
    w: SIMDLength
](x: SIMD[DType.float64, w], y: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """`x ** y` for `x` from 0 to infinity and a `y` that is not 0."""
    comptime F = SIMD[DType.float64, w]
    var high, low = log_pair(x)
    var product = y * high
    var lost = y.fma(high, -product) + y * low
    # An infinite product, or one far beyond the range, has no such rest.
    lost = abs(product).lt(800).select(lost, F(0))
    var result = exp64(product, lost)
    var edge = x.eq(0) | x.eq(INF)
    var vast = (x.eq(0) ^ y.gt(0)).select(F(INF), F(0))
    return (isnan(x) | isnan(y)).select(x + y, edge.select(vast, result))


# (-1)**k / (2k+1)! for k = 8, ..., 1 and (-1)**k / (2k)! for k = 8, ..., 2
comptime _SIN: List[Float64] = [
    2.8114572543455206e-15,
    -7.647163731819816e-13,
    1.6059043836821613e-10,
    -2.505210838544172e-08,
    2.7557319223985893e-06,
    -0.0001984126984126984,
    0.008333333333333333,
    -0.16666666666666666,
]
comptime _COS: List[Float64] = [
    4.779477332387385e-14,
    -1.1470745597729725e-11,
    2.08767569878681e-09,
    -2.755731922398589e-07,
    2.48015873015873e-05,
    -0.001388888888888889,
    0.041666666666666664,
]


@always_inline
def _by_quarter[
    w: SIMDLength
](
    r: SIMD[DType.float64, w], low: SIMD[DType.float64, w], quarter: SIMD[DType.int64, w]
) -> Tuple[SIMD[DType.float64, w], SIMD[DType.float64, w]]:
    """Sine and cosine of `r + low` and a number of quarter turns, `abs(r)` up to pi / 4."""
    var z = r * r
    var s = r + (z * r).fma(horner[_SIN](z), low)
    var c = 1 - (0.5 * z - (z * z).fma(horner[_COS](z), -r * low))
    var swapped = (quarter & 1).ne(0)
    var sine = swapped.select(c, s)
    var cosine = swapped.select(s, c)
    sine = (quarter & 2).ne(0).select(-sine, sine)
    cosine = ((quarter + 1) & 2).ne(0).select(-cosine, cosine)
    return (sine, cosine)


# The binary digits of 2 / pi, 64 a word, behind a word of zeros.
comptime _TWO_OVER_PI: List[UInt64] = [
    0x0000000000000000,
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
]


def _far_angle(x: Float64) -> Tuple[Int64, Float64]:
    """Quarter turns and the rest of a large positive number, by M. Payne and R. Hanek: of its
    product with 2 / pi only digits that matter are computed."""
    var bits = bitcast[DType.uint64, 1](x)
    var mantissa = ((bits & 0xFFFFFFFFFFFFF) | 0x10000000000000).cast[DType.uint128]()
    # Digits ahead of these make whole turns.
    var first = Int(bits >> 52) - 1075 + 62
    var word = first >> 6
    var high = UInt64(0)
    var middle = UInt64(0)
    var low = UInt64(0)
    comptime for i in range(len(_TWO_OVER_PI) - 3):
        if word == i:
            comptime a = _TWO_OVER_PI[i]
            comptime b = _TWO_OVER_PI[i + 1]
            comptime c = _TWO_OVER_PI[i + 2]
            comptime d = _TWO_OVER_PI[i + 3]
            high = _joined(a, b, first & 63)
            middle = _joined(b, c, first & 63)
            low = _joined(c, d, first & 63)
    var carry = (mantissa * low.cast[DType.uint128]()) >> 64
    var product = mantissa * middle.cast[DType.uint128]() + carry
    var top = (mantissa * high.cast[DType.uint128]() + (product >> 64)).cast[DType.uint64]()
    var next = product.cast[DType.uint64]()
    # Two bits of quarters, then their fraction, which is taken from -0.5 to 0.5.
    var fraction = (top << 2) | (next >> 62)
    var quarters = (top >> 62).cast[DType.int64]() + (fraction >> 63).cast[DType.int64]()
    var rest = fraction.cast[DType.int64]().cast[DType.float64]() * 5.421010862427522e-20
    rest += (next << 2).cast[DType.float64]() * 2.938735877055719e-39
    return (quarters, rest * (0.5 * PI))


@always_inline
def _joined(a: UInt64, b: UInt64, shift: Int) -> UInt64:
    return (a << UInt64(shift)) | ((b >> 1) >> UInt64(63 - shift))


@always_inline
def sin_cos64[
    w: SIMDLength
](x: SIMD[DType.float64, w]) -> Tuple[SIMD[DType.float64, w], SIMD[DType.float64, w]]:
    comptime F = SIMD[DType.float64, w]
    var size = abs(x)
    var far = size.ge(35184372088832.0) & size.lt(INF)
    var bounded = size.lt(35184372088832.0).select(x, F(0))
    var shifted = bounded.fma(F(0.6366197723675814), _WHOLE)
    var k = shifted - _WHOLE
    # pi / 2 in three parts of 53 bits.
    var r = k.fma(F(-1.5707963267948966), bounded)
    var a = k.fma(F(-6.123233995736766e-17), r)
    var low = k.fma(F(-6.123233995736766e-17), r - a) + k * 1.4973849048591698e-33
    var quarters = bitcast[DType.int64, w](shifted)
    if far.reduce_or():
        comptime for i in range(Int(w)):
            if far[i]:
                var turns, angle = _far_angle(size[i])
                quarters[i] = turns if x[i] > 0 else -turns
                a[i] = angle if x[i] > 0 else -angle
    var sine, cosine = _by_quarter(a, low, quarters)
    var gone = size.lt(INF).select(F(0), F(NAN))
    return (sine + gone, cosine + gone)


@always_inline
def sin_cos_pi64[
    w: SIMDLength
](x: SIMD[DType.float64, w]) -> Tuple[SIMD[DType.float64, w], SIMD[DType.float64, w]]:
    """Sine and cosine of pi times finite numbers."""
    comptime F = SIMD[DType.float64, w]
    var turns = x - 2 * floor(0.5 * x)
    var shifted = turns.fma(F(2), _WHOLE)
    var r = (turns - 0.5 * (shifted - _WHOLE)) * PI
    return _by_quarter(r, F(0), bitcast[DType.int64, w](shifted))


# (2k)! / (4**k k!**2 (2k+1)) for k = 27, ..., 1
comptime _ASIN: List[Float64] = [
    0.0019650336162772837,
    0.0020776610325181676,
    0.0022014739737101384,
    0.002338091892111975,
    0.0024894486782468836,
    0.00265787063820729,
    0.002846178401108942,
    0.0030578216492580306,
    0.003297059503473485,
    0.0035692053938259347,
    0.003880964558837669,
    0.004240907093679363,
    0.004660143486915096,
    0.005153309682319905,
    0.005740037670841924,
    0.006447210311889649,
    0.0073125258735988454,
    0.008390335809616815,
    0.009761609529194078,
    0.011551800896139705,
    0.01396484375,
    0.017352764423076924,
    0.022372159090909092,
    0.030381944444444444,
    0.044642857142857144,
    0.075,
    0.16666666666666666,
]


@always_inline
def acos64[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """Arc cosine by the series of the arc sine, for `abs(x)` up to 1."""
    comptime F = SIMD[DType.float64, w]
    var a = abs(x)
    var near = a.gt(0.5)
    var z = near.select(0.5 - 0.5 * a, x * x)
    var t = near.select(sqrt(z), x)
    var asin = (t * z).fma(horner[_ASIN](z), t)
    var edge = x.gt(0).select(2 * asin, PI - 2 * asin)
    return near.select(edge, (0.5 * PI) - asin)
