"""Floats taken apart and put together: polynomials, powers of two, and sums of two floats that
stand for one number of twice the precision.

Dekker, "A floating-point technique for extending the available precision", 1971. The compiler may
contract a product and a sum into one rounding, so that where a product's rounding matters it is
written as an fma with 0.
"""

from std.math import sqrt
from std.memory import bitcast


def integer_of[dtype: DType]() -> DType:
    """The signed integers of the size of a float."""
    comptime assert (
        dtype == DType.float32 or dtype == DType.float64
    ), "float32 or float64"
    return DType.int32 if dtype == DType.float32 else DType.int64


def fraction_bits[dtype: DType]() -> Int:
    return 23 if dtype == DType.float32 else 52


def exponent_bias[dtype: DType]() -> Int:
    return 127 if dtype == DType.float32 else 1023


@always_inline
def number[
    dtype: DType, width: SIMDLength
](single: Float64, double: Float64) -> SIMD[dtype, width]:
    """A constant of float32 or of float64."""
    comptime if dtype == DType.float32:
        return SIMD[dtype, width](single.cast[dtype]())
    else:
        return SIMD[dtype, width](double.cast[dtype]())


@always_inline
def polynomial[
    dtype: DType, width: SIMDLength, //, *coefficients: Float64
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Horner's rule, the constant term first."""
    comptime count = len(coefficients)
    var result = SIMD[dtype, width](coefficients[count - 1].cast[dtype]())
    comptime for i in range(1, count):
        result = result.fma(
            x, SIMD[dtype, width](coefficients[count - 1 - i].cast[dtype]())
        )
    return result


@always_inline
def polynomial_in_halves[
    dtype: DType, width: SIMDLength, //, *coefficients: Float64
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """The sum of the even powers and that of the odd ones, each by Horner's rule in the square, so
    that few operations wait for one another; the constant term first, two at least."""
    comptime count = len(coefficients)
    comptime V = SIMD[dtype, width]
    comptime last_even = (count - 1) // 2 * 2
    comptime last_odd = count // 2 * 2 - 1
    var square = x * x
    var even = V(coefficients[last_even].cast[dtype]())
    comptime for i in range(2, last_even + 1, 2):
        even = even.fma(square, V(coefficients[last_even - i].cast[dtype]()))
    var odd = V(coefficients[last_odd].cast[dtype]())
    comptime for i in range(2, last_odd + 1, 2):
        odd = odd.fma(square, V(coefficients[last_odd - i].cast[dtype]()))
    return odd.fma(x, even)


@always_inline
def power_of_two[
    dtype: DType, width: SIMDLength, //
](n: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """2 to the whole number `n` in the range of normal exponents; 0 one below."""
    comptime integer = integer_of[dtype]()
    var biased = n.cast[integer]() + Scalar[integer](exponent_bias[dtype]())
    return bitcast[dtype, width](
        biased << Scalar[integer](fraction_bits[dtype]())
    )


@always_inline
def scaled[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], n: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`x` times 2 to the whole number `n`, whose half is in the range of exponents."""
    var half = (n * 0.5).__floor__()
    return (x * power_of_two(half)) * power_of_two(n - half)


@always_inline
def with_sign_of[
    dtype: DType, width: SIMDLength, //
](magnitude: SIMD[dtype, width], source: SIMD[dtype, width]) -> SIMD[
    dtype, width
]:
    """`magnitude`, which is not negative, with the sign of `source`."""
    comptime integer = integer_of[dtype]()
    var sign = bitcast[integer, width](source) & Scalar[integer].MIN
    return bitcast[dtype, width](bitcast[integer, width](magnitude) | sign)


@always_inline
def is_negative[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[DType.bool, width]:
    """Whether the sign bit is set."""
    return bitcast[integer_of[dtype](), width](x).lt(0)


@fieldwise_init
struct Doubled[dtype: DType, width: SIMDLength](
    ImplicitlyCopyable, RegisterPassable
):
    """`hi + lo`, where `lo` is at most half a unit in the last place of `hi`."""

    var hi: SIMD[Self.dtype, Self.width]
    var lo: SIMD[Self.dtype, Self.width]


@always_inline
def exact_product[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> Doubled[dtype, width]:
    var p = a.fma(b, SIMD[dtype, width](0))
    return {p, a.fma(b, -p)}


@always_inline
def rounded_product[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`a * b`, never contracted with a sum."""
    return a.fma(b, SIMD[dtype, width](0))


@always_inline
def exact_sum[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> Doubled[dtype, width]:
    var s = a + b
    var b_part = s - a
    return {s, (a - (s - b_part)) + (b - b_part)}


@always_inline
def ordered_sum[
    dtype: DType, width: SIMDLength, //
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> Doubled[dtype, width]:
    """The exact sum if `a` is 0 or not smaller in magnitude than `b`."""
    var s = a + b
    return {s, (a - s) + b}


@always_inline
def quotient[
    dtype: DType, width: SIMDLength, //
](a: Doubled[dtype, width], b: Doubled[dtype, width]) -> Doubled[dtype, width]:
    """`a / b` for a normal `b` whose reciprocal is normal too."""
    var reciprocal = 1 / b.hi
    var q = rounded_product(a.hi, reciprocal)
    var rest = (-q).fma(b.hi, a.hi) + (a.lo - q * b.lo)
    return ordered_sum(q, rounded_product(rest, reciprocal))


@always_inline
def square_root[
    dtype: DType, width: SIMDLength, //
](x: Doubled[dtype, width]) -> Doubled[dtype, width]:
    """Of numbers that are not negative."""
    var root = sqrt(x.hi)
    var rest = ((-root).fma(root, x.hi) + x.lo) * 0.5
    var correction = rest / x.hi.gt(0).select(root, SIMD[dtype, width](1))
    return {root, correction}
