"""Division with remainder, powers of integers, shifts and other operations on bits, of programs."""

from ..elementwise.bits import _common_divisor, _common_multiple, _next_after, _shifted
from ..elementwise.division import _integer, _power, fmod64
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
    var rest = fmod64(x.cast[DType.float64](), y.cast[DType.float64]())
    comptime if kind == "fmod":
        return rest.cast[dtype]()
    else:
        var b = y.cast[DType.float64]()
        var wrong = rest.ne(0) & (rest.lt(0) ^ b.lt(0))
        comptime if kind == "mod":
            var result = rest.cast[dtype]()
            return wrong.select(result + y, result)
        else:
            # Without what is left the quotient is nearly whole.
            var a = x.cast[DType.float64]()
            var quotient = (a - rest) / b
            quotient = wrong.select(quotient - 1, quotient).__round__()
            return b.eq(0).select(a / b, quotient).cast[dtype]()
