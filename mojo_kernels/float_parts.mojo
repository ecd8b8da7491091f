"""Signs, exponents and neighbours of floats, by their bits."""

from std.memory import bitcast
from std.utils.numerics import inf, isnan

from .doubled import (
    exponent_bias,
    fraction_bits,
    integer_of,
    number,
    power_of_two,
)


@always_inline
def copysign[
    dtype: DType, width: SIMDLength, //
](magnitude: SIMD[dtype, width], sign: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime integer = integer_of[dtype]()
    comptime sign_bit = Scalar[integer].MIN
    var digits = bitcast[integer, width](magnitude) & ~sign_bit
    return bitcast[dtype, width](
        digits | (bitcast[integer, width](sign) & sign_bit)
    )


@always_inline
def _is_ordinary[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[DType.bool, width]:
    """Neither 0 nor infinite nor NaN."""
    return abs(x).gt(0) & abs(x).lt(SIMD[dtype, width](inf[dtype]()))


@always_inline
def _lifted[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], tiny: SIMD[DType.bool, width]) -> SIMD[
    integer_of[dtype](), width
]:
    """The bits of `x`, times 2**64 where it is `tiny`."""
    var lifted = tiny.select(x * 18446744073709551616.0, x)
    return bitcast[integer_of[dtype](), width](lifted)


@always_inline
def _is_tiny[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[DType.bool, width]:
    return abs(x).lt(power_of_two(number[dtype, width](-126, -1022)))


@always_inline
def mantissa[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`x` by a power of two, from 1/2 to below 1."""
    comptime integer = integer_of[dtype]()
    comptime bits = Scalar[integer](fraction_bits[dtype]())
    comptime one = Scalar[integer](1)
    comptime half = Scalar[integer](exponent_bias[dtype]() - 1) << bits
    comptime keep = Scalar[integer].MIN | ((one << bits) - 1)
    var word = _lifted(x, _is_tiny(x))
    var m = bitcast[dtype, width]((word & keep) | half)
    return _is_ordinary(x).select(m, x)


@always_inline
def exponent[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width]) -> SIMD[DType.int32, width]:
    """The power of two that `mantissa` leaves out; 0 of zeros, infinities and NaN."""
    comptime integer = integer_of[dtype]()
    comptime bits = Scalar[integer](fraction_bits[dtype]())
    comptime bias = Scalar[integer](exponent_bias[dtype]())
    comptime zero = SIMD[DType.int32, width](0)
    var tiny = _is_tiny(x)
    var biased = (_lifted(x, tiny) >> bits) & (2 * bias + 1)
    var e = (biased - (bias - 1)).cast[DType.int32]()
    e -= tiny.select(SIMD[DType.int32, width](64), zero)
    return _is_ordinary(x).select(e, zero)


@always_inline
def ldexp[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], power: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`x` times 2 to the whole number `power`."""
    var limit = number[dtype, width](330, 2200)
    var n = power.clamp(-limit, limit)
    # In thirds, so that the range of exponents suffices.
    var third = (n * (1.0 / 3.0)).__trunc__()
    var step = power_of_two(third)
    return x * step * step * power_of_two(n - 2 * third)


@always_inline
def next_after[
    dtype: DType, width: SIMDLength, //
](x: SIMD[dtype, width], y: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """The neighbour of `x` towards `y`. Of 16-bit floats too."""
    comptime small = DType.int32 if dtype == DType.float32 else DType.int16
    comptime integer = DType.int64 if dtype == DType.float64 else small
    comptime one = SIMD[integer, width](1)
    var word = bitcast[integer, width](x)
    var away = ~(y.gt(x) ^ x.gt(0))
    var next = bitcast[dtype, width](word + away.select(one, -one))
    var least = one | (bitcast[integer, width](y) & Scalar[integer].MIN)
    next = x.eq(0).select(bitcast[dtype, width](least), next)
    next = x.eq(y).select(y, next)
    return isnan(x).select(x, isnan(y).select(y, next))
