"""Random words as numbers of a distribution, by polynomials that vectorise.

A uniform number here is (w + 1/2) / 2^bits of the whole word, so neither 0 nor
1, with full relative precision at both ends. Words have 32 bits for float32,
64 for float64.
"""

from std.math import fma, sqrt

from .philox import Words

comptime PI = 3.14159265358979323846
comptime SQRT_HALF = 0.70710678118654752440


def _step[bits: Int]() -> Float64:
    """Returns 2^-bits."""
    comptime if bits == 64:
        return 1.0 / 4294967296.0 / 4294967296.0
    else:
        return 1.0 / 4294967296.0


@always_inline
def uniform[
    word: DType, W: SIMDLength, //, dtype: DType
](w: SIMD[word, W], digits: Int) -> SIMD[dtype, W]:
    """A multiple of 2^-digits in [0, 1)."""
    comptime size = 64 if dtype == DType.float64 else 32
    var k = w >> Scalar[word](size - digits)
    var scale = 1 / (UInt64(1) << UInt64(digits)).cast[dtype]()
    # As signed integers: there are instructions to convert them.
    comptime signed = DType.int64 if dtype == DType.float64 else DType.int32
    return k.cast[signed]().cast[dtype]() * scale


@always_inline
def minus_log_uniform[
    word: DType, W: SIMDLength, //, dtype: DType
](w: SIMD[word, W]) -> SIMD[dtype, W]:
    """-ln(u) of the uniform number u of a word."""
    comptime bits = 64 if dtype == DType.float64 else 32
    comptime unit = Scalar[dtype](_step[bits]())
    var y = w.cast[dtype]() + 0.5
    # y = m 2^e with m in [sqrt(1/2), sqrt(2)), so u = m 2^(e - bits).
    comptime mantissa = 52 if bits == 64 else 23
    comptime bias = 1023 if bits == 64 else 127
    comptime one = Scalar[word](bias << mantissa)
    comptime half_root = SIMD[dtype, 1](SQRT_HALF).to_bits[word]()
    comptime low = Scalar[word]((1 << mantissa) - 1)
    var shifted = y.to_bits[word]() + (one - half_root)
    var exponent = (shifted >> Scalar[word](mantissa)).cast[DType.int32]()
    var e = exponent - Int32(bias + bits)
    var m = SIMD[dtype, W](from_bits=(shifted & low) + half_root)
    var near_one = y.gt(Scalar[dtype](SQRT_HALF) / unit)
    # 1 - u, which cancels nothing.
    var rest = ((~w).cast[dtype]() + 0.5) * unit
    var f = near_one.select(-rest, m - 1)
    var k = near_one.select(SIMD[dtype, W](0), e.cast[dtype]())
    return -_log1p(f, k)


@always_inline
def _log1p[
    dtype: DType, W: SIMDLength
](f: SIMD[dtype, W], k: SIMD[dtype, W]) -> SIMD[dtype, W]:
    """Returns ln(1 + f) + k ln(2) for f in [sqrt(1/2) - 1, sqrt(2) - 1], with
    the coefficients of Cephes (logf) and fdlibm (e_log.c)."""
    comptime if dtype == DType.float64:
        var s = f / (2 + f)
        var z = s * s
        var r = SIMD[dtype, W](1.479819860511658591e-01)
        r = fma(r, z, SIMD[dtype, W](1.531383769920937332e-01))
        r = fma(r, z, SIMD[dtype, W](1.818357216161805012e-01))
        r = fma(r, z, SIMD[dtype, W](2.222219843214978396e-01))
        r = fma(r, z, SIMD[dtype, W](2.857142874366239149e-01))
        r = fma(r, z, SIMD[dtype, W](3.999999999940941908e-01))
        r = fma(r, z, SIMD[dtype, W](6.666666666666735130e-01))
        r *= z
        var half = 0.5 * f * f
        var small = s * (half + r) + k * 1.90821492927058770002e-10
        return k * 6.93147180369123816490e-01 - ((half - small) - f)
    else:
        var z = f * f
        var p = SIMD[dtype, W](7.0376836292e-2)
        p = fma(p, f, SIMD[dtype, W](-1.1514610310e-1))
        p = fma(p, f, SIMD[dtype, W](1.1676998740e-1))
        p = fma(p, f, SIMD[dtype, W](-1.2420140846e-1))
        p = fma(p, f, SIMD[dtype, W](1.4249322787e-1))
        p = fma(p, f, SIMD[dtype, W](-1.6668057665e-1))
        p = fma(p, f, SIMD[dtype, W](2.0000714765e-1))
        p = fma(p, f, SIMD[dtype, W](-2.4999993993e-1))
        p = fma(p, f, SIMD[dtype, W](3.3333331174e-1))
        var y = f * z * p + k * -2.12194440e-4 - 0.5 * z
        return (f + y) + k * 0.693359375


@always_inline
def ln(x: Float64) -> Float64:
    """Natural logarithm of a positive normal number, on any device."""
    comptime low = (UInt64(1) << 52) - 1
    comptime half_root = Float64(SQRT_HALF).to_bits[DType.uint64]()
    comptime one = UInt64(1023) << 52
    var shifted = x.to_bits[DType.uint64]() + (one - half_root)
    var e = Int(shifted >> 52) - 1023
    var m = Float64(from_bits=(shifted & low) + half_root)
    return _log1p(m - 1, Float64(e))


@always_inline
def ln_complement(p: Float64) -> Float64:
    """Returns ln(1 - p) for p in (0, 1/2]."""
    return _log1p(-p, Float64(0)) if p < 0.29 else ln(1 - p)


def ln_factorial(k: Float64) -> Float64:
    """Returns ln(k!) of a whole number, from 10 on by Stirling's series."""
    if k < 10:
        var product = Float64(1)
        for i in range(2, Int(k) + 1):
            product *= Float64(i)
        return ln(product)
    var r = 1 / k
    var z = r * r
    var tail = r * (1.0 / 12 - z * (1.0 / 360 - z / 1260))
    return (k + 0.5) * ln(k) - k + 0.91893853320467274178 + tail


@fieldwise_init
struct Turn[dtype: DType, W: SIMDLength](
    ImplicitlyCopyable, RegisterPassable
):
    """Cosine and sine of an angle."""

    var cos: SIMD[Self.dtype, Self.W]
    var sin: SIMD[Self.dtype, Self.W]


@always_inline
def eighth_turn[
    dtype: DType, W: SIMDLength
](x: SIMD[dtype, W]) -> Turn[dtype, W]:
    """For x in [-pi/4, pi/4], with the coefficients of Cephes (sinf) and fdlibm
    (k_sin.c, k_cos.c)."""
    var z = x * x
    var s: SIMD[dtype, W]
    var c: SIMD[dtype, W]
    comptime if dtype == DType.float64:
        s = 1.58969099521155010221e-10
        s = fma(s, z, SIMD[dtype, W](-2.50507602534068634195e-08))
        s = fma(s, z, SIMD[dtype, W](2.75573137070700676789e-06))
        s = fma(s, z, SIMD[dtype, W](-1.98412698298579493134e-04))
        s = fma(s, z, SIMD[dtype, W](8.33333333332248946124e-03))
        s = fma(s, z, SIMD[dtype, W](-1.66666666666666324348e-01))
        c = -1.13596475577881948265e-11
        c = fma(c, z, SIMD[dtype, W](2.08757232129817482790e-09))
        c = fma(c, z, SIMD[dtype, W](-2.75573143513906633035e-07))
        c = fma(c, z, SIMD[dtype, W](2.48015872894767294178e-05))
        c = fma(c, z, SIMD[dtype, W](-1.38888888888741095749e-03))
        c = fma(c, z, SIMD[dtype, W](4.16666666666666019037e-02))
    else:
        s = -1.9515295891e-4
        s = fma(s, z, SIMD[dtype, W](8.3321608736e-3))
        s = fma(s, z, SIMD[dtype, W](-1.6666654611e-1))
        c = 2.443315711809948e-5
        c = fma(c, z, SIMD[dtype, W](-1.388731625493765e-3))
        c = fma(c, z, SIMD[dtype, W](4.166664568298827e-2))
    return Turn[dtype, W](1 - (0.5 * z - c * z * z), x + x * z * s)


@always_inline
def whole_turn[
    word: DType, W: SIMDLength, //, dtype: DType
](w: SIMD[word, W]) -> Turn[dtype, W]:
    """Cosine and sine of 2 pi w / 2^bits."""
    comptime bits = 64 if dtype == DType.float64 else 32
    comptime signed = DType.int64 if bits == 64 else DType.int32
    comptime unit = Scalar[dtype](2 * PI * _step[bits]())
    var quarter = (w + Scalar[word](1 << (bits - 3))) >> Scalar[word](bits - 2)
    var rest = w - (quarter << Scalar[word](bits - 2))
    var x = rest.cast[signed]().cast[dtype]() * unit
    var turn = eighth_turn(x)
    var odd = (quarter & 1).ne(0)
    var cos = odd.select(turn.sin, turn.cos)
    var sin = odd.select(turn.cos, turn.sin)
    return Turn[dtype, W](
        ((quarter + 1) & 2).ne(0).select(-cos, cos),
        (quarter & 2).ne(0).select(-sin, sin),
    )


@always_inline
def normals[
    word: DType, W: SIMDLength, //, dtype: DType
](v: SIMD[word, W], w: SIMD[word, W]) -> Turn[dtype, W]:
    """Two independent normal numbers (Box and Muller, 1958)."""
    var radius = sqrt(2 * minus_log_uniform[dtype](v))
    var turn = whole_turn[dtype](w)
    return Turn[dtype, W](radius * turn.cos, radius * turn.sin)


@always_inline
def cauchy[
    word: DType, W: SIMDLength, //, dtype: DType
](w: SIMD[word, W]) -> SIMD[dtype, W]:
    """The tangent of pi (u - 1/2), with full precision at both ends."""
    comptime bits = 64 if dtype == DType.float64 else 32
    comptime signed = DType.int64 if bits == 64 else DType.int32
    comptime unit = Scalar[dtype](PI * _step[bits]())
    comptime top = Scalar[word](1 << (bits - 1))
    comptime last = top - 1
    var k = w & last
    # Beyond pi/4 from the other end, where the tangent is the inverse.
    var far = (k >> Scalar[word](bits - 2)).ne(0)
    var near = far.select(last - k, k)
    var x = (near.cast[signed]().cast[dtype]() + 0.5) * unit
    var turn = eighth_turn(x)
    var value = far.select(turn.cos, turn.sin) / far.select(
        turn.sin, turn.cos
    )
    return (w & top).ne(0).select(-value, value)
