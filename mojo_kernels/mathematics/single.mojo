"""The commonest functions of float32 in as few instructions as errors below 2 units in the last
place allow.

Arguments are reduced as in `elementary.mojo` and `trigonometry.mojo`; the polynomials are minimax
approximations found by Remez' algorithm. Vectors of 512 bits take exponents apart and put them
together with instructions of AVX-512 that give what the shifts for other widths give.
"""

from std.math import sqrt
from std.memory import bitcast
from std.sys import CompilationTarget, llvm_intrinsic
from std.utils.numerics import inf, isnan, nan

from .doubled import polynomial, rounded_product, with_sign_of
from .table_functions import table_erf, table_tanh

comptime Single[width: SIMDLength] = SIMD[DType.float32, width]
comptime Whole[width: SIMDLength] = SIMD[DType.int32, width]

# Its last bit is worth 1: what is added to it is rounded to a whole number.
comptime ROUNDER: Float32 = 12582912
comptime LN2: Float32 = 0.693147182464599609375
comptime LN2_REST: Float32 = -1.9046542999577678785e-9
# So few bits that its product with an exponent is exact.
comptime LN2_SHORT: Float32 = 0.693145751953125
comptime LN2_SHORT_REST: Float32 = 1.4286068203094172321e-6
comptime HALF_PI: Float32 = 1.57079637050628662109375
comptime HALF_PI_SECOND: Float32 = -4.371138828673792887e-8
comptime HALF_PI_THIRD: Float32 = -1.715124510005881872e-15


@always_inline
def _has_avx512[width: SIMDLength]() -> Bool:
    return Int(width) == 16 and CompilationTarget.has_avx512f()


@always_inline
def scaled_by_power[width: SIMDLength, //](x: Single[width], n: Single[width]) -> Single[width]:
    """`x` times 2 to the whole number `n`, whose half is in the range of exponents; rounded once
    where the result is subnormal."""
    comptime if _has_avx512[width]():
        return llvm_intrinsic["llvm.x86.avx512.mask.scalef.ps.512", Single[width]](
            x, n, x, Int16(-1), Int32(4)
        )
    else:
        var whole = n.cast[DType.int32]()
        var half = whole >> 1
        var first = bitcast[DType.float32, width]((half + 127) << 23)
        var second = bitcast[DType.float32, width]((whole - half + 127) << 23)
        return x * first * second


@always_inline
def single_rsqrt[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    comptime if CompilationTarget.has_avx512f():
        return by_sixteen["rsqrt"](x)
    return 1 / sqrt(x)


@always_inline
def _estimated_rsqrt(x: Single[16]) -> Single[16]:
    """By the processor's estimate of 14 bits and a step of Newton's."""
    var r = llvm_intrinsic["llvm.x86.avx512.rsqrt14.ps.512", Single[16]](x, x, Int16(-1))
    var better = r.fma((-x * r).fma(r, Single[16](1)) * 0.5, r)
    # Of 0 and infinity the estimate is the result.
    comptime infinity = Single[16](inf[DType.float32]())
    return (x.eq(0) | x.eq(infinity)).select(r, better)


@always_inline
def single_exp[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    # Comparisons with NaN are false and leave it.
    comptime most = Single[width](91)
    comptime least = Single[width](-105)
    var bounded = x.gt(most).select(most, x)
    bounded = bounded.lt(least).select(least, bounded)
    var n = bounded.fma(Single[width](1.4426950408889634), Single[width](ROUNDER)) - ROUNDER
    return scaled_by_power(_exp_less_1(bounded, n) + 1, n)


@always_inline
def single_exp_normal[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    """The exponential of an `x` from -87 to 88, which is a normal number."""
    var rounded = x.fma(Single[width](1.4426950408889634), Single[width](ROUNDER))
    return (_exp_less_1(x, rounded - ROUNDER) + 1) * power_of_rounded(rounded)


@always_inline
def power_of_rounded[width: SIMDLength, //](rounded: Single[width]) -> Single[width]:
    """2 to the whole number `rounded - ROUNDER`, from -126 to 127; 0 of -127."""
    # The last bits of what has been rounded are the whole number.
    return bitcast[DType.float32, width]((bitcast[DType.int32, width](rounded) << 23) + 0x3F800000)


@always_inline
def _exp_less_1[width: SIMDLength, //](x: Single[width], n: Single[width]) -> Single[width]:
    """The exponential of `x - n ln 2`, which is near 0, less 1."""
    var r = n.fma(Single[width](-LN2), x)
    r = n.fma(Single[width](-LN2_REST), r)
    var p = polynomial[
        0.49999993448, 0.16666520632, 0.041668388047, 0.0083687168785, 0.0013814598576
    ](r)
    return (r * r).fma(p, r)


@always_inline
def single_log[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    """Of `2**k * (1 + f)`, `f` from -1/4 to 1/2."""
    var m: Single[width]
    var k: Single[width]
    comptime if _has_avx512[width]():
        # Mantissas from 3/4 to 3/2, and NaN of negative numbers.
        m = llvm_intrinsic["llvm.x86.avx512.mask.getmant.ps.512", Single[width]](
            x, Int32(11), x, Int16(-1), Int32(4)
        )
        k = _exponent(x) - _exponent(m)
    else:
        comptime tiniest = Single[width](1.1754943508222875e-38)
        var tiny = x.lt(tiniest)
        var word = bitcast[DType.int32, width](tiny.select(x * 16777216, x))
        var whole = (word - 0x3F400000) >> 23
        m = bitcast[DType.float32, width](word - (whole << 23))
        k = whole.cast[DType.float32]() - tiny.select(Single[width](24), Single[width](0))
    var f = m - 1
    var z = f * f
    var p = polynomial[
        0.33333449112,
        -0.25000095842,
        0.19990861242,
        -0.16647312163,
        0.14478394748,
        -0.13161193504,
        0.10463023516,
        -0.045074816835,
    ](f)
    var low = z.fma(Single[width](-0.5), (f * z) * p)
    low = k.fma(Single[width](LN2_SHORT_REST), low)
    var result = k.fma(Single[width](LN2_SHORT), f + low)
    comptime if not _has_avx512[width]():
        comptime infinity = Single[width](inf[DType.float32]())
        result = x.eq(0).select(-infinity, result)
        result = x.lt(0).select(Single[width](nan[DType.float32]()), result)
        result = (x.eq(infinity) | isnan(x)).select(x, result)
    return result


@always_inline
def _exponent[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    """The exponent of a number in AVX-512: infinite of 0 and of infinity."""
    return llvm_intrinsic["llvm.x86.avx512.mask.getexp.ps.512", Single[width]](
        x, x, Int16(-1), Int32(4)
    )


@fieldwise_init
struct Angle[width: SIMDLength](ImplicitlyCopyable, RegisterPassable):
    """`quadrant` quarter turns and `hi + lo`, an eighth of a turn at most."""

    var quadrant: Whole[Self.width]
    var hi: Single[Self.width]
    var lo: Single[Self.width]


@always_inline
def single_angle[width: SIMDLength, //](x: Single[width]) -> Angle[width]:
    """Of an `x` below 131072 in magnitude."""
    var shifted = x.fma(Single[width](0.6366197723675814), Single[width](ROUNDER))
    var n = shifted - ROUNDER
    # Exact: what is left has no more digits than x.
    var first = n.fma(Single[width](-HALF_PI), x)
    var second = rounded_product(n, Single[width](HALF_PI_SECOND))
    var rest = n.fma(Single[width](HALF_PI_SECOND), -second)
    var hi = first - second
    # Where little is left of `first`, nothing of it is lost here.
    var lo = n.fma(Single[width](-HALF_PI_THIRD), ((first - hi) - second) - rest)
    return {bitcast[DType.int32, width](shifted), hi, lo}


@always_inline
def single_sine[
    width: SIMDLength, //
](a: Angle[width], quadrant: Whole[width]) -> Single[width]:
    """The sine of an angle, moved to another quadrant."""
    var z = a.hi * a.hi
    var s = polynomial[-0.16666654937, 0.0083321776865, -0.00019517234693](z)
    var sine = a.hi + (a.hi * z).fma(s, a.lo)
    var c = polynomial[0.04166664372, -0.001388721057, 2.442023135e-5](z)
    var half = z.fma(Single[width](-0.5), Single[width](1))
    var cosine = half + (z * z).fma(c, (1 - half) - z * 0.5 - a.hi * a.lo)
    var result = (quadrant & 1).ne(0).select(cosine, sine)
    var sign = quadrant << 30 & Int32.MIN
    return bitcast[DType.float32, width](bitcast[DType.int32, width](result) ^ sign)


@always_inline
def single_tangent[width: SIMDLength, //](a: Angle[width]) -> Single[width]:
    var z = a.hi * a.hi
    var p = polynomial[
        0.33333349784,
        0.13332662318,
        0.054060035253,
        0.021281557809,
        0.010837485681,
        8.7365834508e-5,
        0.004377369336,
    ](z)
    var t = a.hi + (a.hi * z).fma(p, z.fma(a.lo, a.lo))
    var odd = (a.quadrant & 1).ne(0)
    return odd.select(Single[width](-1), t) / odd.select(t, Single[width](1))


@always_inline
def by_sixteen[width: SIMDLength, //, name: StaticString](x: Single[width]) -> Single[width]:
    """A function that processors with AVX-512 have for vectors of 16, of any width: all give the
    same numbers."""
    comptime if Int(width) > 16:
        comptime half = Int(width) // 2
        var first = by_sixteen[name](x.slice[half]())
        var second = by_sixteen[name](x.slice[half, offset=half]())
        return rebind[Single[width]](first.join(second))
    elif Int(width) < 16:
        return rebind[Single[width]](by_sixteen[name](x.join(x)).slice[Int(width)]())
    else:
        var lanes = rebind[Single[16]](x)
        comptime if name == "rsqrt":
            return rebind[Single[width]](_estimated_rsqrt(lanes))
        elif name == "tanh":
            return rebind[Single[width]](table_tanh(lanes))
        else:
            comptime assert name == "erf", "no such function"
            return rebind[Single[width]](table_erf(lanes))


@always_inline
def single_tanh[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    """As `less / (2 - less)` of `less`, what e to the `-2 |x|` is less than 1."""
    comptime if CompilationTarget.has_avx512f():
        return by_sixteen["tanh"](x)
    # Beyond 10 all is 1, and NaN is left as it is.
    comptime most = Single[width](10)
    var size = abs(x)
    var bounded = size.gt(most).select(most, size)
    var shifted = bounded.fma(Single[width](-2 * 1.4426950408889634), Single[width](ROUNDER))
    var n = shifted - ROUNDER
    var q = _exp_less_1(bounded * -2, n)
    var power = power_of_rounded(shifted)
    var most_of_it = 1 - power
    var less = (-power).fma(q, most_of_it)
    var rest = (-power).fma(q, most_of_it - less)
    var divisor = 2 - less
    # What rounding takes from the divisor counts where the quotient is almost 1.
    var lost = (2 - divisor) - less
    return with_sign_of((less + (less * -less).fma(lost, rest)) / divisor, x)


@always_inline
def single_atan[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    var size = abs(x)
    var steep = size.gt(1)
    var t = steep.select(Single[width](-1), size) / steep.select(size, Single[width](1))
    var z = t * t
    var p = polynomial[
        -0.33333152736,
        0.19993772835,
        -0.14211055321,
        0.10666004724,
        -0.07552214502,
        0.043211863683,
        -0.01636792992,
        0.0029206927409,
    ](z)
    var low = (t * z).fma(p, steep.select(Single[width](HALF_PI_SECOND), Single[width](0)))
    var result = steep.select(Single[width](HALF_PI), Single[width](0)) + (t + low)
    return with_sign_of(result, x)
