"""Division with remainder, powers of integers, shifts and other operations on bits, of programs."""

from std.math import copysign

from ..elementwise.bits import _common_divisor, _common_multiple, _next_after, _shifted
from ..elementwise.division import _integer, _power, exact_fmod
from .operations import Operation, wide


struct Exact[kind: StaticString, dtype: DType](Operation):
    """An operation on two numbers. Divided by 0, integers give any result."""

    comptime to = Self.dtype
    comptime a = Self.dtype
    comptime b = Self.dtype
    comptime c = Self.dtype
    comptime operands = 2
    comptime long = True

    @staticmethod
    @always_inline
    def of[
        w: Int
    ](
        x: SIMD[wide[Self.a](), w], y: SIMD[wide[Self.b](), w], z: SIMD[wide[Self.c](), w]
    ) -> SIMD[wide[Self.to](), w]:
        comptime if Self.kind == "next":
            return _next(x, y)
        elif Self.dtype.is_floating_point():
            return _float[Self.kind](x, y)
        elif Self.kind == "floor_div":
            return _integer["floor"](x, y)
        elif Self.kind == "mod":
            return _integer["remainder"](x, y)
        elif Self.kind == "pow":
            return _power(x, y)
        elif Self.kind == "left" or Self.kind == "right":
            return _shifted[left = Self.kind == "left"](x, y)
        else:
            var result = SIMD[wide[Self.a](), w](0)
            for i in range(w):
                comptime if Self.kind == "gcd":
                    result[i] = _common_divisor(x[i], y[i])
                else:
                    comptime assert Self.kind == "lcm", "no such operation"
                    result[i] = _common_multiple(x[i], y[i])
            return result


@always_inline
def _next[
    dtype: DType, w: SIMDLength, //
](x: SIMD[dtype, w], y: SIMD[dtype, w]) -> SIMD[dtype, w]:
    return _next_after(x, y)


@always_inline
def _float[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, w], y: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """The remainder of floats, exact, and their quotient rounded down."""
    var left = exact_fmod(x, y)
    comptime if kind == "fmod":
        return left
    else:
        var wrong = left.ne(0) & (left.lt(0) ^ y.lt(0))
        comptime if kind == "mod":
            return wrong.select(left + y, left)
        else:
            var rest = left.cast[DType.float64]()
            var b = y.cast[DType.float64]()
            # Without what is left the quotient is nearly whole.
            var a = x.cast[DType.float64]()
            var quotient = (a - rest) / b
            quotient = wrong.select(quotient - 1, quotient).__round__()
            comptime zero = SIMD[DType.float64, w](0)
            var signed = copysign(zero, copysign(zero + 1, a) * copysign(zero + 1, b))
            quotient = quotient.eq(zero).select(signed, quotient)
            return b.eq(0).select(a / b, quotient).cast[dtype]()
