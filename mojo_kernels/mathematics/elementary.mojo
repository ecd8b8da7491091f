"""Exponentials, logarithms and powers of float32 and float64, in SIMD.

Errors stay below 2 units in the last place; NaN, infinities and signed zeros are as in C99, and
subnormal numbers too, but MAX's threads on CPU take those for zeros. Reductions after Tang,
"Table-driven implementation of the exponential function", 1989, and Sun's fdlibm, 1993; the
polynomials are minimax approximations found by Remez' algorithm.
"""

from std.math import sqrt
from std.memory import bitcast
from std.utils.numerics import inf, isnan, nan

from .doubled import (
    Doubled,
    exact_product,
    exact_sum,
    exponent_bias,
    fraction_bits,
    integer_of,
    is_negative,
    number,
    ordered_sum,
    polynomial,
    power_of_two,
    quotient,
    rounded_product,
    scaled,
)
from .single import Single, single_exp, single_log

comptime LOG2_E = 1.4426950408889634
comptime LOG10_E_SINGLE = 0.4342944920063018798828125
comptime LOG10_E_SINGLE_REST = -1.01030500522316836e-8
comptime LOG10_E_DOUBLE = 0.4342944819032518167
comptime LOG10_E_DOUBLE_REST = 1.09831965021676511e-17
comptime LOG10_2_SINGLE = 0.301025390625
comptime LOG10_2_SINGLE_REST = 4.6050389811952137389e-6
comptime LOG10_2_DOUBLE = 0.3010299956640665186569095
comptime LOG10_2_DOUBLE_REST = -8.5323443170571065302e-14
# 2 / ln 2 and a third of it.
comptime C1_SINGLE = 2.8853900432586669921875
comptime C1_SINGLE_REST = 3.85192598225323494e-8
comptime C1_DOUBLE = 2.885390081777926774
comptime C1_DOUBLE_REST = 4.07105474818620641e-17
comptime C3_SINGLE = 0.961796700954437255859375
comptime C3_SINGLE_REST = -7.02846165095275855e-9
comptime C3_DOUBLE = 0.9617966939259755543
comptime C3_DOUBLE_REST = 5.0577616648125906e-17


@fieldwise_init
struct ReducedExponential[dtype: DType, width: SIMDLength](
    ImplicitlyCopyable, RegisterPassable
):
    """`n * ln 2 + r + r_lo`, and the exponential of the rest minus 1."""

    var n: SIMD[Self.dtype, Self.width]
    var r: SIMD[Self.dtype, Self.width]
    var tail: SIMD[Self.dtype, Self.width]


@always_inline
def reduced_exponential[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], low: SIMD[dtype, width]) -> ReducedExponential[dtype, width]:
    """`n`, `r` and `tail`, with `e ** (x + low) = 2 ** n * (1 + r + tail)`."""
    var n = (x * number[dtype, width](LOG2_E, LOG2_E)).__round__()
    var first = (-n).fma(
        number[dtype, width](0.693147182464599609375, 0.69314718055994528623),
        x,
    )
    var second = number[dtype, width](
        -1.9046542999577678785e-9, 2.3190468138462996154e-17
    )
    var r = (-n).fma(second, first)
    var r_low = (-n).fma(second, first - r) + low
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[
            0.5000000049,
            0.1666666683,
            0.04166634228,
            0.008333270501,
            0.001394203429,
            0.0001991567834,
        ](r)
    else:
        p = polynomial[
            0.5,
            0.166666666666666776,
            0.041666666666666704,
            0.00833333333332065371,
            0.00138888888888651786,
            0.000198412698888929694,
            0.0000248015873641395676,
            2.75572411663506876e-6,
            2.75572395733672465e-7,
            2.51101772429927887e-8,
            2.09254455500881948e-9,
        ](r)
    return {n, r, (r * r).fma(p, r_low)}


@always_inline
def _bounded[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`x` where its exponential neither vanishes nor overflows by far; NaN becomes a number."""
    return x.clamp(
        number[dtype, width](-105, -746), number[dtype, width](91, 712)
    )


@always_inline
def exp[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if dtype == DType.float32:
        return rebind[SIMD[dtype, width]](single_exp(rebind[Single[width]](x)))
    var e = reduced_exponential(_bounded(x), SIMD[dtype, width](0))
    return isnan(x).select(x, scaled(1 + (e.r + e.tail), e.n))


@always_inline
def exponential_of_sum[
    dtype: DType, width: SIMDLength, //
](x: Doubled[dtype, width], mut n: SIMD[dtype, width]) -> Doubled[dtype, width]:
    """The exponential of `x`, which is not NaN, divided by 2 to the `n`."""
    var e = reduced_exponential(_bounded(x.hi), x.lo)
    n = e.n
    var q = e.r + e.tail
    var hi = 1 + q
    return {hi, ((1 - hi) + q) + (q.fma(x.lo, (e.r - q) + e.tail))}


@always_inline
def expm1[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var bounded = x.clamp(
        SIMD[dtype, width](-40), number[dtype, width](91, 712)
    )
    var e = reduced_exponential(bounded, SIMD[dtype, width](0))
    # Halves, because 2 to the n overflows before the result does.
    var half = power_of_two(e.n - 1)
    var result = half.fma(e.r + e.tail, half - 0.5) * 2
    result = e.n.gt(
        number[dtype, width](127, 1023)
    ).select(scaled(1 + (e.r + e.tail), e.n), result)
    var same = isnan(x) | abs(x).lt(number[dtype, width](1e-9, 1e-18))
    return same.select(x, result)


@always_inline
def _exp2_fraction[
    dtype: DType, width: SIMDLength, //
](r: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`(2**r - 1) / r` for `r` in [-1/2, 1/2]."""
    comptime if dtype == DType.float32:
        return polynomial[
            0.6931472078,
            0.2402265139,
            0.0555032442,
            0.009617998449,
            0.001340161229,
            0.0001547784567,
        ](r)
    else:
        return polynomial[
            0.693147180559945308,
            0.240226506959101398,
            0.0555041086648217543,
            0.00961812910759038253,
            0.00133335581463752707,
            0.000154035304621073948,
            0.0000152527338714415546,
            1.32154326827043686e-6,
            1.01780447965475599e-7,
            7.0742452238589799e-9,
            4.45763868262414417e-10,
        ](r)


@always_inline
def exp2[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    var bounded = x.clamp(
        number[dtype, width](-152, -1077), number[dtype, width](129, 1025)
    )
    var n = bounded.__round__()
    var r = bounded - n
    return isnan(x).select(x, scaled(r.fma(_exp2_fraction(r), 1), n))


@fieldwise_init
struct _Logarithm[dtype: DType, width: SIMDLength](
    ImplicitlyCopyable, RegisterPassable
):
    """Of a number `2**k * (1 + f)`: `f` exactly, and what `log(1 + f)` is less than `f`."""

    var k: SIMD[Self.dtype, Self.width]
    var f: SIMD[Self.dtype, Self.width]
    var less: SIMD[Self.dtype, Self.width]


@always_inline
def _split[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], mut m: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`k`, and `m` between the roots of 1/2 and of 2, of a positive number `2**k * m`."""
    comptime integer = integer_of[dtype]()
    comptime bits = Scalar[integer](fraction_bits[dtype]())
    comptime root_of_half = Scalar[integer](
        0x3F3504F3
    ) if dtype == DType.float32 else Scalar[integer](0x3FE6A09E667F3BCD)
    var tiny = x.lt(number[dtype, width](1.1754943508222875e-38, 2.2250738585072014e-308))
    var lifted = tiny.select(
        x * number[dtype, width](16777216.0, 18014398509481984.0), x
    )
    var word = bitcast[integer, width](lifted)
    var k = (word - root_of_half) >> bits
    m = bitcast[dtype, width](word - (k << bits))
    var lift = tiny.select(
        number[dtype, width](24, 54), SIMD[dtype, width](0)
    )
    return k.cast[dtype]() - lift


@always_inline
def _less[
    dtype: DType, width: SIMDLength, //
](f: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`f - log(1 + f)`, from atanh(f / (2 + f))."""
    var s = f / (2 + f)
    var z = s * s
    var p: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        p = polynomial[0.666667784, 0.3997726588, 0.2987971567](z)
    else:
        p = polynomial[
            0.666666666666673726,
            0.399999999993937405,
            0.285714287474662904,
            0.222221980121075313,
            0.181835954184512354,
            0.153132085637690493,
            0.148048152548612231,
        ](z)
    var half_square = f * f * 0.5
    return half_square - s * z.fma(p, half_square)


@always_inline
def _logarithm[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> _Logarithm[dtype, width]:
    var m = SIMD[dtype, width](1)
    var k = _split(x, m)
    var f = m - 1
    return {k, f, _less(f)}


@always_inline
def _log_total[
    dtype: DType, width: SIMDLength, //
](k: SIMD[dtype, width], f: SIMD[dtype, width], less: SIMD[dtype, width]) -> SIMD[
    dtype, width
]:
    """`k ln 2 + f - less`."""
    # So few bits that the product with k is exact.
    var whole = rounded_product(
        k, number[dtype, width](0.693145751953125, 0.6931471805601177038624883)
    )
    var sum = ordered_sum(whole, f)
    var low = k.fma(
        number[dtype, width](1.4286068203094172321e-6, -1.7239444525614834773e-13),
        sum.lo - less,
    )
    return sum.hi + low


@always_inline
def _log_domain[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], result: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """A logarithm's result, but of 0, infinity, NaN and negative numbers."""
    comptime infinity = SIMD[dtype, width](inf[dtype]())
    var r = x.eq(0).select(-infinity, result)
    r = x.lt(0).select(SIMD[dtype, width](nan[dtype]()), r)
    return (x.eq(infinity) | isnan(x)).select(x, r)


@always_inline
def log[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if dtype == DType.float32:
        return rebind[SIMD[dtype, width]](single_log(rebind[Single[width]](x)))
    var l = _logarithm(x)
    return _log_domain(x, _log_total(l.k, l.f, l.less))


@always_inline
def _log_to_base[
    dtype: DType, width: SIMDLength, //
](
    x: SIMD[dtype, width],
    scale: Doubled[dtype, width],
    step: Doubled[dtype, width],
) -> SIMD[dtype, width]:
    """The natural logarithm times `scale`; `step` is that of 2, `hi` times k exact."""
    var l = _logarithm(x)
    var p = exact_product(l.f, scale.hi)
    var sum = ordered_sum(rounded_product(l.k, step.hi), p.hi)
    var low = p.lo + (l.f * scale.lo - l.less * scale.hi) + l.k * step.lo
    return _log_domain(x, sum.hi + (sum.lo + low))


@always_inline
def log2[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    return _log_to_base(
        x,
        Doubled(
            number[dtype, width](1.44269502162933349609375, 1.442695040888963387004651),
            number[dtype, width](1.9259629911266174681e-8, 2.035527374093103205e-17),
        ),
        Doubled(SIMD[dtype, width](1), SIMD[dtype, width](0)),
    )


@always_inline
def log10[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    return _log_to_base(
        x,
        Doubled(
            number[dtype, width](LOG10_E_SINGLE, LOG10_E_DOUBLE),
            number[dtype, width](LOG10_E_SINGLE_REST, LOG10_E_DOUBLE_REST),
        ),
        Doubled(
            number[dtype, width](LOG10_2_SINGLE, LOG10_2_DOUBLE),
            number[dtype, width](LOG10_2_SINGLE_REST, LOG10_2_DOUBLE_REST),
        ),
    )


@always_inline
def log1p_of_sum[
    dtype: DType, width: SIMDLength, //
](v: Doubled[dtype, width], extra: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`log(1 + v) + extra * ln 2` for finite `v` above -1 and whole `extra`."""
    var u = exact_sum(SIMD[dtype, width](1), v.hi)
    var m = SIMD[dtype, width](1)
    var k = _split(u.hi, m)
    var down = power_of_two(max(-k, number[dtype, width](-127, -1023)))
    var f = ordered_sum(m - 1, (u.lo + v.lo) * down)
    var less = _less(f.hi) - f.lo * (1 - f.hi)
    return _log_total(k + extra, f.hi, less)


@always_inline
def log1p[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime zero = SIMD[dtype, width](0)
    var result = log1p_of_sum(Doubled(x, zero), zero)
    result = _log_domain(1 + x, result)
    return abs(x).lt(number[dtype, width](1e-9, 1e-18)).select(x, result)


@always_inline
def _log2_doubled[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> Doubled[dtype, width]:
    """The binary logarithm of a positive number."""
    var m = SIMD[dtype, width](1)
    var k = _split(x, m)
    var above = m + 1
    var s = quotient(
        Doubled(m - 1, SIMD[dtype, width](0)), Doubled(above, m - (above - 1))
    )
    var z = exact_product(s.hi, s.hi)
    z.lo += 2 * s.hi * s.lo
    var third = number[dtype, width](C3_SINGLE, C3_DOUBLE)
    var b = exact_product(z.hi, third)
    var q: SIMD[dtype, width]
    comptime if dtype == DType.float32:
        q = polynomial[0.577080250357, 0.411844008040, 0.337959368515](z.hi)
    else:
        q = polynomial[
            0.577078016355585024,
            0.412198583111380394,
            0.320598897905439253,
            0.262308199466264644,
            0.221952219868586617,
            0.192403127688838677,
            0.16841705906817974,
            0.17308948528851507,
        ](z.hi)
    b.lo += z.hi * number[dtype, width](C3_SINGLE_REST, C3_DOUBLE_REST)
    b.lo += z.lo * third + z.hi * z.hi * q
    var w = ordered_sum(number[dtype, width](C1_SINGLE, C1_DOUBLE), b.hi)
    w.lo += number[dtype, width](C1_SINGLE_REST, C1_DOUBLE_REST) + b.lo
    var l = exact_product(s.hi, w.hi)
    l.lo += s.hi * w.lo + s.lo * w.hi
    var sum = ordered_sum(k, l.hi)
    return ordered_sum(sum.hi, sum.lo + l.lo)


@always_inline
def pow[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], y: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`x` to the `y` with the special cases of C99."""
    comptime one = SIMD[dtype, width](1)
    comptime infinity = SIMD[dtype, width](inf[dtype]())
    var size = abs(x)
    var l = _log2_doubled(size)
    var p = exact_product(y, l.hi)
    p.lo += y * l.lo
    var bounded = p.hi.clamp(
        number[dtype, width](-152, -1077), number[dtype, width](129, 1025)
    )
    var low = bounded.eq(p.hi).select(p.lo, SIMD[dtype, width](0))
    var n = bounded.__round__()
    var r = (bounded - n) + low
    var result = scaled(r.fma(_exp2_fraction(r), 1), n)
    var extreme = size.eq(0) | size.eq(infinity) | abs(y).eq(infinity)
    var grows = ~(size.gt(1) ^ y.gt(0))
    result = extreme.select(
        grows.select(infinity, SIMD[dtype, width](0)), result
    )
    result = size.eq(1).select(one, result)
    var whole = y.__trunc__().eq(y)
    var half = y * 0.5
    var odd = whole & half.__trunc__().ne(half)
    result = (odd & is_negative(x)).select(-result, result)
    var undefined = x.lt(0) & size.ne(infinity) & ~whole
    undefined |= isnan(x) | isnan(y)
    result = undefined.select(SIMD[dtype, width](nan[dtype]()), result)
    return (y.eq(0) | x.eq(1)).select(one, result)


@always_inline
def log_add_exp[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """The logarithm of e^a + e^b."""
    var high = a.gt(b).select(a, b)
    var result = high + log1p(exp(-abs(a - b)))
    # Equal infinities have no difference.
    var equal_infinity = a.eq(b) & abs(a).eq(SIMD[dtype, width](inf[dtype]()))
    return equal_infinity.select(a, result)


@always_inline
def log_add_exp2[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """The binary logarithm of 2^a + 2^b."""
    var high = a.gt(b).select(a, b)
    var ratio = log1p(exp2(-abs(a - b)))
    var result = high + rounded_product(ratio, number[dtype, width](LOG2_E, LOG2_E))
    var equal_infinity = a.eq(b) & abs(a).eq(SIMD[dtype, width](inf[dtype]()))
    return equal_infinity.select(a, result)


@always_inline
def hypot[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], y: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """The root of x² + y², scaled so that squares neither overflow nor vanish."""
    comptime infinity = SIMD[dtype, width](inf[dtype]())
    var a = max(abs(x), abs(y))
    var b = min(abs(x), abs(y))
    var up = power_of_two(number[dtype, width](86, 600))
    var down = power_of_two(number[dtype, width](-66, -514))
    var one = SIMD[dtype, width](1)
    var small = a.lt(power_of_two(number[dtype, width](-50, -400)))
    var large = a.gt(power_of_two(number[dtype, width](60, 500)))
    var scale = small.select(up, large.select(down, one))
    var back = small.select(1 / up, large.select(1 / down, one))
    a *= scale
    b *= scale
    var result = sqrt(a.fma(a, b * b)) * back
    result = (isnan(x) | isnan(y)).select(
        SIMD[dtype, width](nan[dtype]()), result
    )
    var infinite = abs(x).eq(infinity) | abs(y).eq(infinity)
    return infinite.select(infinity, result)
