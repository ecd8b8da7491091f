"""The error function and its complement, of float32 and float64, in SIMD.

Errors stay below 2 units in the last place. Beyond 1 the complement is exp(-x²) times a function
that hardly varies, in the variable of Shepherd and Laframboise, "Chebyshev approximation of
(1 + 2x) exp(x²) erfc x in 0 <= x < infinity", 1981; the polynomials are minimax approximations
found by Remez' algorithm.
"""

from std.sys import CompilationTarget
from std.utils.numerics import isnan

from .doubled import (
    Doubled,
    exact_product,
    exact_sum,
    number,
    ordered_sum,
    polynomial,
    quotient,
    scaled,
    with_sign_of,
)
from .elementary import exponential_of_sum
from .single import by_sixteen, single_exp_normal


@always_inline
def _complement[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """The complement of a number that is not negative and of which it does not vanish."""
    comptime zero = SIMD[dtype, width](0)
    var t = (a - 4) / (a + 4)
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[
            -0.139621130432896996,
            0.0153796320566857929,
            0.0680978217316345159,
            -0.101037863684384643,
            0.0937214160473266706,
            -0.0663542432750184633,
            0.037221733330659948,
            -0.0160255255685431906,
            0.00504287067256932604,
            -0.00113592442411535819,
            -0.000641516782490012738,
        ](t)
    else:
        p = polynomial[
            -0.139621116840562536,
            0.0153796521026196873,
            0.0680970542546954095,
            -0.101039066036301465,
            0.0937328349982518616,
            -0.0663303658122775728,
            0.0371675155390800814,
            -0.0161977340571189316,
            0.00503196996362120329,
            -0.00075777329361261927,
            -0.000199256616540450001,
            0.000150621703360355466,
            -0.0000243994808702215154,
            -0.0000112221437582321664,
            5.71029816093198997e-6,
            2.94133217289981375e-7,
            -8.26123370707935699e-7,
            7.40735231343788739e-8,
            1.10459921071560811e-7,
            -1.73954204859463743e-8,
            -1.41038436493169152e-8,
            1.63735076764314733e-9,
            1.18859144482029829e-9,
        ](t)
    var start = number[dtype, width](1.23299515247344970703125, 1.2329951186255526)
    var rest = number[dtype, width](-3.375710827703125e-8, -4.53e-17)
    # (1 + 2a) exp(a²) erfc(a), then what is in the way.
    var product = ordered_sum(start, t.fma(p, rest))
    var smooth = quotient(product, exact_sum(2 * a, SIMD[dtype, width](1)))
    var square = exact_product(a, a)
    var n = zero
    var e = exponential_of_sum(Doubled(-square.hi, -square.lo), n)
    var result = exact_product(e.hi, smooth.hi)
    result.lo += e.hi * smooth.lo + e.lo * smooth.hi
    return scaled(result.hi + result.lo, n)


@always_inline
def _near[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> Doubled[dtype, width]:
    """The error function between -1 and 1."""
    var z = x * x
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[
            -0.3761263072,
            0.1128362993,
            -0.02685548594,
            0.005191293867,
            -0.000803503593,
            7.933076101e-5,
        ](z)
    else:
        p = polynomial[
            -0.376126389031836144,
            0.112837916709470754,
            -0.0268661706434988812,
            0.00522397760892423246,
            -0.000854832605125781393,
            0.000120552969385558737,
            -0.0000149247725013568843,
            1.64478296487158645e-6,
            -1.62113697450970425e-7,
            1.37317660679766437e-8,
            -7.81649582300896982e-10,
        ](z)
    # 2 / sqrt(pi) in two parts.
    var slope = number[dtype, width](1.12837922573089599609375, 1.128379167095512559)
    var rest = number[dtype, width](-5.8635383422197591e-8, 1.5335459613165880746e-17)
    var linear = exact_product(x, slope)
    return {linear.hi, x.fma(z.fma(p, rest), linear.lo)}


@always_inline
def _single[width: SIMDLength, //](x: SIMD[DType.float32, width]) -> SIMD[DType.float32, width]:
    """The error function of float32: odd near 0, further off by the logarithm of the complement,
    which is nearly a polynomial. Beyond 4 all is 1."""
    comptime if CompilationTarget.has_avx512f():
        return by_sixteen["erf"](x)
    var a = abs(x)
    var near = x.fma(
        polynomial[
            0.128379151,
            -0.376125014,
            0.1128188013,
            -0.02676845814,
            0.004995317138,
            -0.0005999365758,
        ](x * x),
        x,
    )
    var exponent = polynomial[
        -0.0001993870322,
        -1.127658793,
        -0.6372130613,
        -0.1039024651,
        0.0222119205,
        -0.00303922923,
        0.0001955093986,
    ](a.clamp(0, 4))
    var far = with_sign_of(1 - single_exp_normal(exponent), x)
    return (a.lt(0.92) | isnan(x)).select(near, far)


@always_inline
def erf[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if dtype == DType.float32:
        return rebind[SIMD[dtype, width]](_single(rebind[SIMD[DType.float32, width]](x)))
    var near = _near(x)
    var far = 1 - _complement(abs(x).clamp(0, 7))
    var a = abs(x)
    var result = (a.lt(1) | isnan(x)).select(near.hi + near.lo, far)
    return with_sign_of(result, x)


@always_inline
def erfc[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var small = _near(x)
    var below = exact_sum(SIMD[dtype, width](1), -small.hi)
    var near = below.hi + (below.lo - small.lo)
    var tail = _complement(abs(x).clamp(0, number[dtype, width](10.5, 27.5)))
    var far = x.lt(0).select(2 - tail, tail)
    return (abs(x).lt(0.75) | isnan(x)).select(near, far)
