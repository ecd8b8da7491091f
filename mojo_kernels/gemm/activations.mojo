"""What may follow the sums of a product or a convolution, by the numbers that kernels are given."""

from std.math import exp, tanh
from std.utils.numerics import min_or_neg_inf, nan

from ..mathematics.gelu import gelu

# What the number of an activation may be.
comptime NONE = 0
comptime ACTIVATIONS = 8


def activation_name(number: Int) -> StaticString:
    """The activation that a number stands for, `ACTIVATIONS` of `ops/common/bank.py`."""
    if number == NONE:
        return "none"
    if number == 1:
        return "relu"
    if number == 2:
        return "relu6"
    if number == 3:
        return "hardsigmoid"
    if number == 4:
        return "hardswish"
    if number == 5:
        return "silu"
    if number == 6:
        return "gelu"
    return "gelu_tanh"


@always_inline
def activated[
    dtype: DType, width: SIMDLength, //, activation: StaticString
](v: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`none`, `relu`, `relu6`, `hardsigmoid`, `hardswish`, `silu`, `gelu` or `gelu_tanh`."""
    comptime Some = SIMD[dtype, width]
    comptime if activation == "none":
        return v
    elif activation == "relu":
        return v.lt(0).select(Some(0), v)
    elif activation == "relu6":
        # NaN stays.
        return v.lt(0).select(Some(0), v.gt(6).select(Some(6), v))
    elif activation == "hardsigmoid":
        return activated["relu6"](v + 3) / 6
    elif activation == "hardswish":
        return v * activated["relu6"](v + 3) / 6
    else:
        comptime assert dtype.is_floating_point(), "float only"
        comptime if activation == "gelu":
            return gelu(v)
        elif activation == "gelu_tanh":
            var inner = 0.79788456080286535588 * (v + 0.044715 * v * v * v)
            return v * (tanh(inner) + 1) * 0.5
        else:
            comptime assert activation == "silu", "unknown activation"
            # `exp` is never infinite; torch makes NaN of minus infinity.
            var lowest = v.eq(min_or_neg_inf[dtype]())
            return lowest.select(nan[dtype](), v / (exp(-v) + 1))
