"""The Gaussian error linear unit: a number times the probability that a normal one is smaller.

Of a magnitude the logarithm of the probability that a normal number is further off is nearly a
polynomial. It is a minimax approximation found by Lawson's algorithm.
"""

from std.memory import bitcast
from std.sys import CompilationTarget

from .doubled import polynomial_in_halves
from .error_function import erf
from .single import ROUNDER, Single, power_of_rounded

# Where the logarithm is -126; the power of 2 one below is 0.
comptime _END: Float32 = 12.99
# What it is rounded with: the power is that of one less, for the probability is not doubled.
comptime _ROUNDER = ROUNDER - 1


@always_inline
def gelu[
    dtype: DType, width: SIMDLength, //, by_tables: Bool = False
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """`x (1 + erf(x / sqrt(2))) / 2`; of float32 the probability is off by 1e-7 at most, which is
    what rounding 1 + erf costs.

    Parameters:
        by_tables: Whether registers are free for the tables of `erf` where there is AVX-512: fewer
            instructions wait for one another.
    """
    comptime tables = by_tables and CompilationTarget.has_avx512f()
    comptime if dtype == DType.float32 and not tables:
        return rebind[SIMD[dtype, width]](_single(rebind[Single[width]](x)))
    else:
        return x * 0.5 * (1 + erf(x * 0.70710678118654752440))


@always_inline
def _single[width: SIMDLength, //](x: Single[width]) -> Single[width]:
    var a = min(abs(x), Single[width](_END))
    # The binary logarithm of twice the probability that a number is further off, on one side.
    var logarithm = a * polynomial_in_halves[
        -1.1511054295118228,
        -0.45920609921612754,
        -0.05250079924290836,
        0.007062004944201542,
        -0.0001216508504451073,
        -0.0002054476862374885,
        5.011099631568492e-05,
        -5.711075777926997e-06,
        3.2345005035782205e-07,
        -7.24494024183045e-09,
    ](a)
    var rounded = logarithm + _ROUNDER
    var power = polynomial_in_halves[
        1,
        0.6931472028585571,
        0.2402264791343023,
        0.05550332462933848,
        0.009618437353948656,
        0.001339887784205903,
        0.00015353371295453132,
    ](logarithm - (rounded - _ROUNDER))
    var tail = power * power_of_rounded(rounded)
    # By the sign bit, which costs no comparison.
    return x * bitcast[DType.int32, width](x).lt(0).select(tail, 1 - tail)
