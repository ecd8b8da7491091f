"""Numbers of 8 bits with an exponent, `float8_e4m3fn` and `float8_e5m2` of the paper "FP8 Formats
for Deep Learning" (Micikevicius et al.), between bytes and wider floats."""

from std.memory import bitcast
from std.utils.numerics import nan


@always_inline
def is_float8[dtype: DType]() -> Bool:
    """Whether these are numbers of 8 bits with an exponent."""
    return dtype == DType.float8_e4m3fn or dtype == DType.float8_e5m2


@always_inline
def from_float8[
    width: SIMDLength, //, dtype: DType
](bytes: SIMD[DType.uint8, width]) -> SIMD[DType.float32, width]:
    """The numbers that bytes stand for; all of them are numbers of float32."""
    var wide = bytes.cast[DType.uint16]()
    comptime if dtype == DType.float8_e5m2:
        # The first half of a float16.
        return bitcast[DType.float16, width](wide << 8).cast[DType.float32]()
    else:
        # A float16 whose exponent is 8 too small.
        var digits = wide & 0x7F
        var half = bitcast[DType.float16, width](((wide & 0x80) << 8) | (digits << 7))
        var v = half.cast[DType.float32]() * 256
        return digits.eq(0x7F).select(SIMD[DType.float32, width](nan[DType.float32]()), v)


@always_inline
def to_float8[
    width: SIMDLength, //, dtype: DType, saturating: Bool
](x: SIMD[DType.float32, width]) -> SIMD[DType.uint8, width]:
    """The nearest such numbers, ties to even. What is too large is infinite; of e4m3fn, which has
    no infinity, NaN, or the largest number if it is `saturating`."""
    comptime e5m2 = dtype == DType.float8_e5m2
    comptime bits = 2 if e5m2 else 3
    comptime bias = 15 if e5m2 else 7
    comptime Words = SIMD[DType.uint32, width]
    var word = bitcast[DType.uint32, width](x)
    var sign = ((word >> 24) & 0x80).cast[DType.uint8]()
    var size = word & 0x7FFFFFFF
    # Below the least normal number, steps are as wide as that number's: adding a float32 whose
    # last digit is such a step rounds to it.
    comptime step = UInt32((127 - bias + 1 - bits + 23) << 23)
    var magic = SIMD[DType.float32, width](bitcast[DType.float32, 1](step))
    var small = bitcast[DType.uint32, width](bitcast[DType.float32, width](size) + magic) - step
    comptime drop = UInt32(23 - bits)
    var odd = (size >> drop) & 1
    comptime half = UInt32((1 << (22 - bits)) - 1)
    var normal = (size + half + odd - UInt32((127 - bias) << 23)) >> drop
    comptime least = UInt32((127 - bias + 1) << 23)
    var result = size.lt(least).select(small, normal)
    # From half a step above the largest number on.
    comptime largest = UInt32(0x47700000) if e5m2 else UInt32(0x43E80000)
    var beyond = size.ge(largest) if e5m2 else size.gt(largest)
    comptime most = 0x7E if saturating else 0x7F
    var top = Words(0x7C if e5m2 else most)
    result = beyond.select(top, result)
    result = size.gt(0x7F800000).select(Words(0x7F), result)
    return sign | result.cast[DType.uint8]()


@always_inline
def widened[
    dtype: DType, width: SIMDLength, //, sum: DType
](v: SIMD[dtype, width]) -> SIMD[sum, width]:
    """Numbers in the type of sums."""
    comptime if is_float8[dtype]():
        return from_float8[dtype](bitcast[DType.uint8, width](v)).cast[sum]()
    else:
        return v.cast[sum]()


@always_inline
def float8[kind: StaticString]() -> DType:
    """The dtype that torch calls `kind`."""
    return DType.float8_e5m2 if kind == "float8_e5m2" else DType.float8_e4m3fn
