"""What becomes of a value when others fall on it."""

from std.utils.numerics import inf, isnan


@always_inline
def combined[
    dtype: DType, width: SIMDLength, //, kind: StaticString
](a: SIMD[dtype, width], b: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """What becomes of `a` when `b` is written to it; NaN stays NaN."""
    comptime assert (
        kind == "write" or kind == "sum" or kind == "prod" or kind == "amax" or kind == "amin"
    ), "unknown kind"
    comptime if kind == "write":
        return b
    elif kind == "sum":
        return a + b
    elif kind == "prod":
        return a * b
    else:
        var best: SIMD[dtype, width]
        comptime if kind == "amax":
            best = a.gt(b).select(a, b)
        else:
            best = a.lt(b).select(a, b)
        # A comparison with NaN is false, so a NaN in `b` is chosen already.
        comptime if dtype.is_floating_point():
            return isnan(a).select(a, best)
        else:
            return best


def neutral[dtype: DType, kind: StaticString]() -> Scalar[dtype]:
    """What `combined` does not notice."""
    comptime if kind == "prod":
        return 1
    elif kind == "amax":
        comptime if dtype.is_floating_point():
            return -inf[dtype]()
        else:
            return Scalar[dtype].MIN
    elif kind == "amin":
        comptime if dtype.is_floating_point():
            return inf[dtype]()
        else:
            return Scalar[dtype].MAX
    else:
        return 0
