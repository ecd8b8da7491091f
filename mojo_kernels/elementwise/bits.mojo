"""Operations on the bits of integers and floats, and the greatest common divisor."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import copysign
from std.memory import bitcast
from std.sys import bit_width_of
from std.utils.numerics import isnan

from ..mathematics.double import pow64
from ..core.each import foreach


@always_inline
def _shifted[
    dtype: DType, w: SIMDLength, //, left: Bool
](a: SIMD[dtype, w], b: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """A shift by more bits than there are, or by a negative number, leaves only the sign."""
    comptime V = SIMD[dtype, w]
    comptime most = bit_width_of[dtype]() - 1
    # As unsigned numbers, so that a negative one is too large as well.
    var inside = b.ge(0) & b.le(V(most))
    comptime if left:
        return inside.select(a << inside.select(b, V(0)), V(0))
    elif dtype.is_signed():
        return a >> inside.select(b, V(most))
    else:
        return inside.select(a >> inside.select(b, V(0)), V(0))


@always_inline
def _common_divisor[dtype: DType, //](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """Euclid's algorithm on signed numbers, as torch does it: what the smallest integer gives may
    be negative."""
    var x = abs(a)
    var y = abs(b)
    while x != 0:
        var rest = Scalar[dtype](0)
        # Truncated, and without a division that traps.
        if x != Scalar[dtype](-1):
            rest = y % x
            if rest != 0 and (y < 0) != (x < 0):
                rest -= x
        y = x
        x = rest
    return y


@always_inline
def _common_multiple[dtype: DType, //](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    var divisor = _common_divisor(a, b)
    if divisor == 0:
        return 0
    # Short integers do not wrap around before the sign is taken off, as in C.
    comptime wide = DType.int32 if bit_width_of[dtype]() < 32 else dtype
    var x = a.cast[wide]()
    # The divisor of both, so the quotient is whole.
    var quotient = -x if divisor == Scalar[dtype](-1) else x // divisor.cast[wide]()
    return abs(quotient * b.cast[wide]()).cast[dtype]()


@always_inline
def _next_after[
    dtype: DType, w: SIMDLength, //
](a: SIMD[dtype, w], b: SIMD[dtype, w]) -> SIMD[dtype, w]:
    comptime bits = DType.int64 if dtype == DType.float64 else (
        DType.int32 if dtype == DType.float32 else DType.int16
    )
    comptime I = SIMD[bits, w]
    var number = bitcast[bits, w](a)
    var away = a.lt(b) ^ number.lt(0)
    var next = bitcast[dtype, w](number + away.select(I(1), I(-1)))
    var least = copysign(bitcast[dtype, w](I(1)), b)
    next = a.eq(0).select(least, next)
    next = a.eq(b).select(b, next)
    return isnan(a).select(a, isnan(b).select(b, next))


@register("tmb_bits")
struct Bits:
    """An operation on two tensors: "and", "or", "xor", "left", "right", "gcd" and "lcm" of
    integers, "next" (the float after `x` towards `y`)."""

    @staticmethod
    def execute[
        kind: StaticString, target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[
            width: Int
        ](at: Coord[...]) {var x, var y} -> SIMD[output.dtype, width]:
            var a = x.load[width](at)
            var b = y.load[width](at)
            comptime if kind == "and":
                return a & b
            elif kind == "or":
                return a | b
            elif kind == "xor":
                return a ^ b
            elif kind == "left" or kind == "right":
                return _shifted[left = kind == "left"](a, b)
            elif kind == "next":
                return _next_after(a, b)
            else:
                comptime assert kind == "gcd" or kind == "lcm", "no such operation"
                var result = SIMD[output.dtype, width](0)
                comptime for i in range(width):
                    comptime if kind == "gcd":
                        result[i] = _common_divisor(a[i], b[i])
                    else:
                        result[i] = _common_multiple(a[i], b[i])
                return result

        foreach[target=target](body, output, ctx)


@always_inline
def _power_of_two[w: SIMDLength](k: SIMD[DType.int64, w]) -> SIMD[DType.float64, w]:
    """For `k` from -1022 to 1023."""
    return bitcast[DType.float64, w]((k + 1023) << 52)


@always_inline
def _scaled[
    w: SIMDLength
](x: SIMD[DType.float64, w], exponent: SIMD[DType.int64, w]) -> SIMD[DType.float64, w]:
    """`x * 2**exponent`, rounded once: in steps that stay clear of subnormal numbers."""
    var rest = exponent.clamp(-2200, 2200)
    var result = x
    comptime for _ in range(2):
        var step = rest.clamp(-969, 1023)
        # The last step may be longer, and the only one that rounds.
        step = rest.ge(-1022).select(rest.clamp(-1022, 1023), step)
        result *= _power_of_two(step)
        rest -= step
    return result * _power_of_two(rest.clamp(-1022, 1023))


@register("tmb_ldexp")
struct Ldexp:
    """`x * 2**exponent` of integer exponents, without overflow in between."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        exponent: InputTensor[dtype=DType.int32, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[
            width: Int
        ](at: Coord[...]) {var x, var exponent} -> SIMD[output.dtype, width]:
            var v = x.load[width](at).cast[DType.float64]()
            var e = exponent.load[width](at).cast[DType.int64]()
            return _scaled(v, e).cast[output.dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_times_power_of_two")
struct TimesPowerOfTwo:
    """`x * 2**y` of floats: the power is rounded, and may overflow, before the product."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[
            width: Int
        ](at: Coord[...]) {var x, var y} -> SIMD[output.dtype, width]:
            var exponent = y.load[width](at).cast[DType.float64]()
            var power = pow64(SIMD[DType.float64, width](2), exponent)
            return x.load[width](at) * power.cast[output.dtype]()

        foreach[target=target](body, output, ctx)
