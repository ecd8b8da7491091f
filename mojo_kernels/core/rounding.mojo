"""Rounding of what was computed to what is kept."""

from std.memory import bitcast
from std.utils.numerics import isnan


@always_inline
def bits_of[w: SIMDLength, //](x: SIMD[DType.float32, w]) -> SIMD[DType.uint16, w]:
    """The bits of `x` as bfloat16, rounded to nearest even."""
    # Processors' own instruction takes subnormal numbers for 0, and where there is none the
    # compiler calls a function for each number.
    var bits = bitcast[DType.uint32, w](x)
    var rounded = (bits + (((bits >> 16) & 1) + 0x7FFF)) >> 16
    return isnan(x).select((bits >> 16) | 0x40, rounded).cast[DType.uint16]()


@always_inline
def from_bits[w: SIMDLength, //](bits: SIMD[DType.uint16, w]) -> SIMD[DType.float32, w]:
    """The numbers whose bits as bfloat16 these are."""
    return bitcast[DType.float32, w](bits.cast[DType.uint32]() << 16)


@always_inline
def to_memory[
    dtype: DType, w: SIMDLength, //, stored: DType
](x: SIMD[dtype, w]) -> SIMD[stored, w]:
    """What is put into memory, of what was computed."""
    comptime if stored == DType.bfloat16 and dtype == DType.float32:
        return bitcast[stored, w](bits_of(rebind[SIMD[DType.float32, w]](x)))
    else:
        return x.cast[stored]()
