"""The logarithm of the gamma function, its derivatives and the Hurwitz zeta function."""

from std.math import floor, trunc
from std.utils.numerics import isnan

from .double import (
    HALF_LOG_2PI,
    INF,
    NAN,
    PI,
    exp64,
    horner,
    log64,
    pow64,
    sin_cos_pi64,
)

comptime EULER = 0.5772156649015329

# log gamma(2 + t) / t, from (zeta(k) - 1) / k: Abramowitz and Stegun, 6.1.33.
comptime _NEAR_TWO: List[Float64] = [
    1.330476437424449e-10,
    -2.7595228851242334e-10,
    5.731367241678862e-10,
    -1.1921401405860912e-09,
    2.4836745438024785e-09,
    -5.183475041970047e-09,
    1.0838659214896955e-08,
    -2.2711094608943164e-08,
    4.7698101693639804e-08,
    -1.0043224823968099e-07,
    2.1207184805554665e-07,
    -4.492469198764566e-07,
    9.55141213040742e-07,
    -2.039215753801366e-06,
    4.374866789907488e-06,
    -9.439488275268397e-06,
    2.050721277567069e-05,
    -4.492623673813314e-05,
    9.945751278180853e-05,
    -0.00022315475845357939,
    0.0005096695247430425,
    -0.001192753911703261,
    0.0028905103307415234,
    -0.007385551028673986,
    0.020580808427784546,
    -0.0673523010531981,
    0.3224670334241132,
    0.42278433509846713,
]

# Stirling's series: B_2k / (2k (2k-1)) for k = 9, ..., 1.
comptime _STIRLING: List[Float64] = [
    0.17964437236883057,
    -0.029550653594771242,
    0.00641025641025641,
    -0.0019175269175269176,
    0.0008417508417508417,
    -0.0005952380952380953,
    0.0007936507936507937,
    -0.002777777777777778,
    0.08333333333333333,
]

# B_2k / 2k for k = 8, ..., 1.
comptime _DIGAMMA: List[Float64] = [
    -0.4432598039215686,
    0.08333333333333333,
    -0.021092796092796094,
    0.007575757575757576,
    -0.004166666666666667,
    0.003968253968253968,
    -0.008333333333333333,
    0.08333333333333333,
]

# B_2k / (2k)! for k = 1, ..., 12.
comptime _EULER_MACLAURIN: List[Float64] = [
    0.08333333333333333,
    -0.001388888888888889,
    3.306878306878307e-05,
    -8.267195767195768e-07,
    2.08767569878681e-08,
    -5.284190138687493e-10,
    1.3382536530684679e-11,
    -3.3896802963225827e-13,
    8.586062056277845e-15,
    -2.174868698558062e-16,
    5.5090028283602295e-18,
    -1.3954464685812522e-19,
]


@always_inline
def stirling_rest[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """What Stirling's formula without its series lacks of log gamma, for `x` from 8.5 on."""
    return horner[_STIRLING](1 / (x * x)) / x


@always_inline
def log_gamma_near_two[
    w: SIMDLength
](t: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The logarithm of gamma(2 + t) for `abs(t)` up to 0.5."""
    return t * horner[_NEAR_TWO](t)


@always_inline
def log_gamma_positive[
    w: SIMDLength
](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    comptime F = SIMD[DType.float64, w]
    var one = F(1)
    # Steps of 1 to [1.5, 2.5]: upwards for small numbers, downwards for others.
    var up = x.lt(1.5)
    var twice = x.lt(0.5)
    var product = up.select(twice.select(x * (x + 1), x), one)
    var t = up.select(twice.select(x, x - 1), x - 2)
    comptime for _ in range(6):
        var down = t.gt(0.5)
        product *= down.select(t + 1, one)
        t -= down.select(one, F(0))
    var large = x.gt(8.5)
    var logarithm = log64(large.select(x, product))
    var near = log_gamma_near_two(t) + up.select(-logarithm, logarithm)
    var far = (x - 0.5).fma(logarithm, HALF_LOG_2PI - x) + stirling_rest(x)
    return x.eq(INF).select(x, large.select(far, near))


@always_inline
def lgamma64[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The logarithm of abs(gamma(x))."""
    comptime F = SIMD[DType.float64, w]
    var a = abs(x)
    var result = log_gamma_positive(a)
    var mirrored = x.lt(0)
    if mirrored.reduce_or():
        # gamma(-a) gamma(a) = -pi / (a sin(pi a))
        var tiny = a.lt(1e-9)
        var sine, _ = sin_cos_pi64(a)
        var product = tiny.select(a, abs(sine) * a / PI)
        var reflected = -log64(product) - tiny.select(-EULER * a, result)
        reflected = product.eq(0).select(F(INF), reflected)
        result = mirrored.select(reflected, result)
    result = a.eq(INF).select(a, result)
    return x.eq(0).select(F(INF), result)


@always_inline
def digamma64[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    comptime F = SIMD[DType.float64, w]
    var mirrored = x.lt(0)
    var y = mirrored.select(1 - x, x)
    # The sum of 1 / (y + k) as one quotient.
    var over = F(0)
    var below = F(1)
    comptime for _ in range(10):
        var low = y.lt(10)
        over = low.select(over.fma(y, below), over)
        below = low.select(below * y, below)
        y += low.select(F(1), F(0))
    var z = 1 / (y * y)
    var result = log64(y) - 0.5 / y - z * horner[_DIGAMMA](z) - over / below
    if mirrored.reduce_or():
        var sine, cosine = sin_cos_pi64(x - trunc(x))
        var pole = sine.eq(0)
        var cotangent = PI * cosine / pole.select(F(1), sine)
        result = mirrored.select(pole.select(F(NAN), result - cotangent), result)
    # Near 0, where the sine vanishes. The sign of infinity is that of -x.
    return abs(x).lt(1e-18).select(-1 / x, result)


@always_inline
def _zeta_positive[
    w: SIMDLength
](s: SIMD[DType.float64, w], q: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The Hurwitz zeta function for `s` above 1 and `q` above 0, by Euler and Maclaurin."""
    comptime F = SIMD[DType.float64, w]
    var sum = pow64(q, -s)
    var a = q
    comptime for _ in range(9):
        a += 1
        sum += pow64(a, -s)
    a += 1
    var power = pow64(a, -s)
    var rest = power * (a / (s - 1) + 0.5)
    var factor = s / a
    var inverse = 1 / (a * a)
    comptime for k in range(12):
        comptime c = _EULER_MACLAURIN[k]
        rest += power * factor * c
        factor *= (s + Float64(2 * k + 1)) * (s + Float64(2 * k + 2)) * inverse
    # Where the rest does not matter its factors may overflow.
    var done = (power * a).le(1e-18 * sum) & s.gt(30)
    return sum + (done | power.eq(0)).select(F(0), rest)


@always_inline
def zeta64[
    w: SIMDLength
](s: SIMD[DType.float64, w], q: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The Hurwitz zeta function; for `q` below 0 only of whole `s`."""
    comptime F = SIMD[DType.float64, w]
    var mirrored = q.lt(0)
    var result = _zeta_positive(s, mirrored.select(q - floor(q), q))
    if mirrored.reduce_or():
        # The terms below 0 are those above up to their sign.
        var part = floor(q) + 1 - q
        part = q.gt(-1).select(-q, part)
        var below = _zeta_positive(s, part) - _zeta_positive(s, 1 - q)
        var odd = (s - 2 * floor(0.5 * s)).eq(1)
        result += mirrored.select(odd.select(-below, below), F(0))
    var whole_s = s.eq(floor(s))
    result = (mirrored & ~whole_s).select(F(NAN), result)
    result = (q.le(0) & q.eq(floor(q))).select(F(INF), result)
    result = s.gt(1).select(result, s.eq(1).select(F(INF), F(NAN)))
    return (isnan(s) | isnan(q)).select(s + q, result)


@always_inline
def factorial64(n: Int) -> Float64:
    if n > 170:
        return INF
    var result = Float64(1)
    for k in range(2, n + 1):
        result *= Float64(k)
    return result


@always_inline
def polygamma64[
    w: SIMDLength
](n: Int, factorial: Float64, x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The derivative of order `n` (from 1 on) of digamma."""
    var sign = Float64(1) if n % 2 else Float64(-1)
    return sign * factorial * zeta64(SIMD[DType.float64, w](Float64(n + 1)), x)
