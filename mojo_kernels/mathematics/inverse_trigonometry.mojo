"""Inverse trigonometric functions of float32 and float64, in SIMD.

Errors stay below 2 units in the last place. The polynomials are minimax approximations found by
Remez' algorithm.
"""

from std.utils.numerics import inf, isnan, nan

from .doubled import (
    Doubled,
    exact_sum,
    is_negative,
    number,
    ordered_sum,
    polynomial,
    power_of_two,
    quotient,
    square_root,
    with_sign_of,
)
from .single import Single, single_atan
from .trigonometry import (
    HALF_PI,
    HALF_PI_REST,
    HALF_PI_SINGLE,
    HALF_PI_SINGLE_REST,
)


@always_inline
def _half_pi[dtype: DType, width: SIMDLength]() -> Doubled[dtype, width]:
    return {
        number[dtype, width](HALF_PI_SINGLE, HALF_PI),
        number[dtype, width](HALF_PI_SINGLE_REST, HALF_PI_REST),
    }


@always_inline
def _arc_sine_rest[
    dtype: DType, width: SIMDLength, //
](z: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`asin(a) / a - 1` for `z = a * a` up to 1/4."""
    comptime if dtype == DType.float32:
        return z * polynomial[
            0.1666675407, 0.07495236473, 0.04547770158, 0.02414487759, 0.04222285274
        ](z)
    else:
        return z * polynomial[
            0.166666666666667627,
            0.0749999999997020148,
            0.044642857175168796,
            0.0303819426816849455,
            0.0223722157070528498,
            0.0173515993519495052,
            0.0139809694617203007,
            0.0113977154665493255,
            0.0107868483380812953,
            0.00368188867972129492,
            0.0217662171060582833,
            -0.0210810554335931123,
            0.032679210272396932,
        ](z)


@always_inline
def _arc[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], near: SIMD[DType.bool, width]) -> Doubled[dtype, width]:
    """As asin(a) if `near` (`a` below 1/2), else half of acos(a)."""
    var z = near.select(a * a, (1 - a) * 0.5)
    var root = square_root(
        Doubled(near.select(SIMD[dtype, width](1), z), SIMD[dtype, width](0))
    )
    var hi = near.select(a, root.hi)
    var lo = near.select(SIMD[dtype, width](0), root.lo)
    return {hi, hi.fma(_arc_sine_rest(z), lo)}


@always_inline
def asin[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var near = abs(x).lt(0.5)
    var arc = _arc(abs(x), near)
    var quarter = _half_pi[dtype, width]()
    var sum = ordered_sum(quarter.hi, -2 * arc.hi)
    var far = sum.hi + (sum.lo + (quarter.lo - 2 * arc.lo))
    var result = near.select(arc.hi + arc.lo, far)
    return isnan(x).select(x, with_sign_of(result, x))


@always_inline
def acos[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var near = abs(x).lt(0.5)
    var arc = _arc(abs(x), near)
    var quarter = _half_pi[dtype, width]()
    var below = is_negative(x)
    # pi/2 - asin(x) near 0, else acos(x) or pi - acos(-x).
    var factor = near.select(SIMD[dtype, width](1), SIMD[dtype, width](2))
    var sign = (near ^ below).select(-factor, factor)
    var base = near.select(
        SIMD[dtype, width](1),
        below.select(SIMD[dtype, width](2), SIMD[dtype, width](0)),
    )
    var sum = ordered_sum(base * quarter.hi, sign * arc.hi)
    var result = sum.hi + (sum.lo + base.fma(quarter.lo, sign * arc.lo))
    return abs(x).le(1).select(result, SIMD[dtype, width](nan[dtype]()))


@always_inline
def _angle[
    dtype: DType, width: SIMDLength, //
](y: SIMD[dtype, width], x: SIMD[dtype, width]) -> Doubled[dtype, width]:
    """As atan(y / x) of numbers that are neither negative nor both 0 or infinite."""
    comptime zero = SIMD[dtype, width](0)
    var steep = y.gt(2.414213562373095 * x)
    var flat = y.lt(0.41421356237309503 * x)
    var middle = ~(steep | flat)
    var difference = exact_sum(y, -x)
    var sum = exact_sum(y, x)
    var above = Doubled(
        middle.select(difference.hi, steep.select(-x, y)),
        middle.select(difference.lo, zero),
    )
    var below = Doubled(
        middle.select(sum.hi, steep.select(y, x)), middle.select(sum.lo, zero)
    )
    var t = quotient(above, below)
    var z = t.hi * t.hi
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[
            -0.3333331521, 0.1999847007, -0.1424345602, 0.1059290975, -0.06075176974
        ](z)
    else:
        p = polynomial[
            -0.333333333333331942,
            0.199999999999525666,
            -0.142857142800870758,
            0.11111110777666561,
            -0.090908975824932318,
            0.0769205695384409469,
            -0.0666306544409288205,
            0.0584759788320937756,
            -0.050379469847354179,
            0.038028998600125653,
            -0.0178671652367501612,
        ](z)
    var quarter = _half_pi[dtype, width]()
    var part = steep.select(
        SIMD[dtype, width](1), middle.select(SIMD[dtype, width](0.5), zero)
    )
    var start = ordered_sum(part * quarter.hi, t.hi)
    var low = (t.hi * z).fma(p, t.lo) + part * quarter.lo
    return ordered_sum(start.hi, start.lo + low)


@always_inline
def atan[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if dtype == DType.float32:
        return rebind[SIMD[dtype, width]](single_atan(rebind[Single[width]](x)))
    # From here on it is pi/2 to all digits, and reciprocals stay normal.
    var bounded = abs(x).clamp(0, number[dtype, width](1e18, 1e36))
    var result = _angle(bounded, SIMD[dtype, width](1))
    var same = isnan(x) | abs(x).lt(number[dtype, width](1e-9, 1e-18))
    return same.select(x, with_sign_of(result.hi + result.lo, x))


@always_inline
def atan2[
    dtype: DType, width: SIMDLength, //
](y: SIMD[dtype, width], x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime one = SIMD[dtype, width](1)
    comptime infinity = SIMD[dtype, width](inf[dtype]())
    var a = abs(y)
    var b = abs(x)
    var large = max(a, b)
    # Scaled so that sums do not overflow and reciprocals stay normal.
    var up = power_of_two(number[dtype, width](60, 500))
    var scale = large.lt(1 / up).select(up * up, large.gt(up).select(1 / up, one))
    a *= scale
    b *= scale
    # Equal infinities count as 1 and 1, zeros as 0 and 1.
    var both = (abs(y).eq(infinity) & abs(x).eq(infinity))
    var one_infinite = large.eq(infinity) & ~both
    a = both.select(one, a)
    b = both.select(one, b)
    var zero = SIMD[dtype, width](0)
    a = one_infinite.select(abs(y).eq(infinity).select(one, zero), a)
    b = one_infinite.select(abs(y).eq(infinity).select(zero, one), b)
    b = large.eq(0).select(one, b)
    var angle = _angle(a, b)
    var quarter = _half_pi[dtype, width]()
    var turned = ordered_sum(2 * quarter.hi, -angle.hi)
    var behind = turned.hi + (turned.lo + (2 * quarter.lo - angle.lo))
    var result = is_negative(x).select(behind, angle.hi + angle.lo)
    var lost = isnan(x) | isnan(y)
    return lost.select(
        SIMD[dtype, width](nan[dtype]()), with_sign_of(result, y)
    )
