"""Functions of programs that are no single instruction: exponentials, trigonometry, powers."""

from ..mathematics.elementary import exp
from ..mathematics.float_parts import exponent
from ..mathematics.gelu import gelu
from ..mathematics.hyperbolic import tanh
from .operations import Operation, wide
from ..elementwise.unary import function_of_one, function_of_two


@always_inline
def math_of_one[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, w]) -> SIMD[dtype, w]:
    comptime if kind == "sigmoid":
        return 1 / (1 + exp(-x))
    elif kind == "silu":
        return x / (1 + exp(-x))
    elif kind == "gelu":
        return gelu[by_tables=True](x)
    elif kind == "gelu_tanh":
        var inner = 0.79788456080286535588 * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + tanh(inner))
    elif kind == "gelu_quick":
        return x / (1 + exp(-1.702 * x))
    else:
        return function_of_one[kind](x)


def is_of_two[kind: StaticString]() -> Bool:
    for name in ["pow", "atan2", "hypot", "copysign", "logaddexp", "logaddexp2"]:
        if kind == name:
            return True
    return False


struct Math[kind: StaticString, dtype: DType](Operation):
    """A function of one or two floats."""

    comptime to = Self.dtype
    comptime a = Self.dtype
    comptime b = Self.dtype
    comptime c = Self.dtype
    comptime operands = 2 if is_of_two[Self.kind]() else 1
    comptime long = True

    @staticmethod
    @always_inline
    def of[
        w: Int
    ](
        x: SIMD[wide[Self.a](), w], y: SIMD[wide[Self.b](), w], z: SIMD[wide[Self.c](), w]
    ) -> SIMD[wide[Self.to](), w]:
        comptime if Self.operands == 2:
            return function_of_two[Self.kind](x, y)
        else:
            return math_of_one[Self.kind](x)


struct Exponent[dtype: DType](Operation):
    """The second result of `frexp`."""

    comptime to = DType.int32
    comptime a = Self.dtype
    comptime b = Self.dtype
    comptime c = Self.dtype
    comptime operands = 1
    comptime long = True

    @staticmethod
    @always_inline
    def of[
        w: Int
    ](
        x: SIMD[wide[Self.a](), w], y: SIMD[wide[Self.b](), w], z: SIMD[wide[Self.c](), w]
    ) -> SIMD[wide[Self.to](), w]:
        return rebind[SIMD[wide[Self.to](), w]](exponent(x))
