"""Quotients, remainders and powers: of integers, which 0 may not divide, and exact remainders of
floats."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import copysign, trunc
from std.sys import simd_width_of
from std.utils.numerics import inf, nan

from ..core.each import foreach
from ..core.memory import Address, untracked


@always_inline
def _integer[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](a: SIMD[dtype, w], b: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """Without a division that traps: by 0 (nothing sensible), and of the smallest integer by -1,
    which wraps around."""
    comptime V = SIMD[dtype, w]
    var unsafe = b.eq(0)
    comptime if dtype.is_signed():
        unsafe = unsafe | b.eq(V(-1))
    var divisor = unsafe.select(V(1), b)
    var quotient = a // divisor
    var remainder = a - quotient * divisor
    comptime if dtype.is_signed():
        comptime if kind == "trunc" or kind == "fmod":
            var up = remainder.ne(0) & (a.lt(0) ^ divisor.lt(0))
            quotient += up.select(V(1), V(0))
            remainder -= up.select(divisor, V(0))
        quotient = b.eq(V(-1)).select(-quotient, quotient)
    comptime if kind == "floor" or kind == "trunc":
        return quotient
    else:
        return remainder


def _has_zero[
    dtype: DType, //
](values: Address[dtype], size: Int) -> Bool:
    comptime width = simd_width_of[dtype]()
    var zeros = SIMD[DType.bool, width](fill=False)
    var whole = size // width * width
    for i in range(0, whole, width):
        zeros |= values.unsafe_load[width=width](i).eq(0)
    var found = zeros.reduce_or()
    for i in range(whole, size):
        found |= values[unsafe_offset=i] == 0
    return found


@register("tmb_integer_division")
struct IntegerDivision:
    """Integers divided: the quotient rounded down ("floor") or towards 0 ("trunc") or what each
    leaves ("remainder", "fmod"). A CPU raises if a divisor is 0."""

    @staticmethod
    def execute[
        kind: StaticString, target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime if target == "cpu":
            if _has_zero(untracked(y.unsafe_ptr()), y.size()):
                raise Error("ZeroDivisionError")

        @always_inline
        def body[
            width: Int
        ](at: Coord[...]) {var x, var y} -> SIMD[output.dtype, width]:
            return _integer[kind](x.load[width](at), y.load[width](at))

        foreach[target=target](body, output, ctx)


@always_inline
def _power[dtype: DType, w: SIMDLength, //](x: SIMD[dtype, w], n: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """By squaring; wraps around. Of negative powers, only those of 1 and -1 are not 0."""
    comptime V = SIMD[dtype, w]
    var result = V(1)
    var square = x
    var rest = n
    comptime if dtype.is_signed():
        rest = n.lt(0).select(V(0), n)
    while rest.ne(0).reduce_or():
        result = (rest & 1).ne(0).select(result * square, result)
        square *= square
        rest >>= 1
    comptime if dtype.is_signed():
        var sign = (n & 1).ne(0).select(V(-1), V(1))
        var unit = x.eq(1).select(V(1), x.eq(-1).select(sign, V(0)))
        result = n.lt(0).select(unit, result)
    return result


@register("tmb_integer_power")
struct IntegerPower:
    """Integers to the power of integers."""

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
            return _power(x.load[width](at), y.load[width](at))

        foreach[target=target](body, output, ctx)


comptime _LARGE = 4503599627370496.0  # 2**52: quotients below have all their whole digits


@always_inline
def fmod64[
    w: SIMDLength
](x: SIMD[DType.float64, w], y: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """C's `fmod`, exact: the remainder of a quotient of less than 52 bits is, and longer ones are
    worked off from their front."""
    comptime F = SIMD[DType.float64, w]
    var divisor = abs(y)
    var rest = abs(x)
    var finite = rest.lt(F(1.7976931348623157e308) * 2) & divisor.gt(0)
    var todo = finite & rest.ge(divisor)
    while todo.reduce_or():
        var part = todo.select(divisor, F(1))
        var vast = todo & (rest / part).ge(_LARGE)
        while vast.reduce_or():
            part = vast.select(part * _LARGE, part)
            vast = todo & (rest / part).ge(_LARGE)
        var quotient = todo.select(trunc(rest / part), F(0))
        var next = (-quotient).fma(part, rest)
        # The rounded quotient may be one too large.
        next = next.lt(0).select(next + part, next)
        rest = todo.select(next, rest)
        todo = finite & rest.ge(divisor)
    var result = copysign(rest, x)
    return (finite & divisor.eq(divisor)).select(result, F(nan[DType.float64]()))


@always_inline
def exact_fmod[
    dtype: DType, w: SIMDLength, //
](x: SIMD[dtype, w], y: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """C's `fmod`, exact. What a whole quotient that the dtype can tell from its neighbours leaves is a
    number of the dtype, also if the quotient was rounded to one too many."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime F = SIMD[dtype, w]
    comptime limit = F(8388608.0 if dtype == DType.float32 else _LARGE)
    comptime if dtype == DType.float32 or dtype == DType.float64:
        var divisor = abs(y)
        var quotient = abs(x / y)
        if (quotient.lt(limit) & divisor.lt(F(inf[dtype]()))).reduce_and():
            var rest = (-trunc(quotient)).fma(divisor, abs(x))
            return copysign(rest.lt(0).select(rest + divisor, rest), x)
    return fmod64(x.cast[DType.float64](), y.cast[DType.float64]()).cast[dtype]()


@register("tmb_float_remainder")
struct FloatRemainder:
    """The remainder of floats with the dividend's sign, or with the divisor's if `floored`."""

    @staticmethod
    def execute[
        floored: Bool, target: StaticString
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
            var divisor = y.load[width](at)
            var result = exact_fmod(x.load[width](at), divisor)
            comptime if floored:
                var wrong = result.ne(0) & (result.lt(0) ^ divisor.lt(0))
                result = wrong.select(result + divisor, result)
            return result

        foreach[target=target](body, output, ctx)
