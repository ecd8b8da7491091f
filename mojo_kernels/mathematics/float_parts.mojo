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
