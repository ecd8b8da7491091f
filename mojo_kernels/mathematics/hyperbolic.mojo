"""Hyperbolic functions of float32 and float64 and their inverses, in SIMD.

Errors stay below 2 units in the last place. The polynomials are minimax approximations found by
Remez' algorithm.
"""

from std.math import sqrt
from std.utils.numerics import inf, isnan, nan

from .doubled import (
    Doubled,
    exact_product,
    exact_sum,
    number,
    polynomial,
    power_of_two,
    quotient,
    scaled,
    square_root,
    with_sign_of,
)
from .elementary import (
    exponential_of_sum,
    log1p_of_sum,
    reduced_exponential,
)
from .single import Single, single_tanh


@always_inline
def sinh[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var z = x * x
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[
            0.1666666649, 0.008333350614, 0.0001983606345, 2.817454721e-6
        ](z)
    else:
        p = polynomial[
            0.166666666666666674,
            0.00833333333333313859,
            0.000198412698414378321,
            2.75573191552894925e-6,
            2.50521234059637433e-8,
            1.60572397778243608e-10,
            7.75932882757874503e-13,
        ](z)
    var near = (x * z).fma(p, x)
    var n = SIMD[dtype, width](0)
    var e = exponential_of_sum(Doubled(abs(x), SIMD[dtype, width](0)), n)
    var far = scaled(e.hi, n - 1) - scaled(1 / e.hi, -n - 1)
    return (abs(x).lt(1) | isnan(x)).select(near, with_sign_of(far, x))


@always_inline
def cosh[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var n = SIMD[dtype, width](0)
    var e = exponential_of_sum(Doubled(abs(x), SIMD[dtype, width](0)), n)
    var result = scaled(e.hi, n - 1) + scaled(1 / e.hi, -n - 1)
    return isnan(x).select(x, result)


@always_inline
def tanh[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if dtype == DType.float32:
        return rebind[SIMD[dtype, width]](single_tanh(rebind[Single[width]](x)))
    var z = x * x
    var p = polynomial[
        -0.333333333333328775,
        0.133333333332648485,
        -0.0539682539324456369,
        0.0218694876009793269,
        -0.00886322130461520596,
        0.00359199144072349958,
        -0.0014549697588502287,
        0.000586350001892352319,
        -0.000228628001217840913,
        0.0000772130129720263973,
        -0.0000161044457471127763,
    ](z)
    var near = (x * z).fma(p, x)
    # Beyond 25 all is 1.
    var twice = 2 * abs(x).clamp(0, 25)
    var e = reduced_exponential(twice, SIMD[dtype, width](0))
    var far = 1 - 2 / (power_of_two(e.n).fma(1 + (e.r + e.tail), 1))
    return with_sign_of((abs(x).lt(0.625) | isnan(x)).select(near, far), x)


@always_inline
def _log_of_sum[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], near: Doubled[dtype, width]) -> SIMD[dtype, width]:
    """`log(1 + near)`, or `log(2 a)` where `a` is so large that 1 vanishes beside its square."""
    var large = a.gt(number[dtype, width](16384, 268435456))
    var before = exact_sum(a, SIMD[dtype, width](-1))
    var v = Doubled(
        large.select(before.hi, near.hi), large.select(before.lo, near.lo)
    )
    return log1p_of_sum(
        v, large.select(SIMD[dtype, width](1), SIMD[dtype, width](0))
    )


@always_inline
def asinh[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """As log(1 + (a + a² / (1 + sqrt(1 + a²))))."""
    var a = abs(x)
    var square = a * a
    var above = square / (1 + sqrt(1 + square))
    var result = _log_of_sum(a, exact_sum(a, above))
    var same = isnan(x) | a.eq(SIMD[dtype, width](inf[dtype]()))
    same |= a.lt(number[dtype, width](1e-9, 1e-18))
    return same.select(x, with_sign_of(abs(result), x))


@always_inline
def acosh[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """As log(1 + (t + sqrt(t (t + 2)))) with `t = x - 1`."""
    var bounded = x.clamp(1, number[dtype, width](16385, 268435457))
    var t = exact_sum(bounded, SIMD[dtype, width](-1))
    var other = exact_sum(bounded, SIMD[dtype, width](1))
    var square = exact_product(t.hi, other.hi)
    square.lo += t.hi * other.lo + t.lo * other.hi
    var root = square_root(square)
    var above = exact_sum(root.hi, t.hi)
    above.lo += root.lo + t.lo
    var result = _log_of_sum(x, above)
    result = x.lt(1).select(SIMD[dtype, width](nan[dtype]()), result)
    var same = isnan(x) | x.eq(SIMD[dtype, width](inf[dtype]()))
    return same.select(x, result)


@always_inline
def atanh[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Half of log(1 + 2 a / (1 - a))."""
    comptime zero = SIMD[dtype, width](0)
    var a = abs(x)
    var inside = a.lt(1)
    var below = exact_sum(SIMD[dtype, width](1), -inside.select(a, zero))
    var v = quotient(Doubled(2 * a, zero), below)
    var result = with_sign_of(abs(log1p_of_sum(v, zero)) * 0.5, x)
    result = a.eq(1).select(
        with_sign_of(SIMD[dtype, width](inf[dtype]()), x), result
    )
    result = a.gt(1).select(SIMD[dtype, width](nan[dtype]()), result)
    var same = isnan(x) | a.lt(number[dtype, width](1e-9, 1e-18))
    return same.select(x, result)
