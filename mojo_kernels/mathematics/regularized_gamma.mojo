"""The regularized incomplete gamma functions P(a, x) and Q(a, x), a number at a time."""

from std.math import sqrt
from std.utils.numerics import isnan

from .double import INF, NAN, PI, exp64, horner, log1p64, log64, log_pair
from .scaled_error_function import erfcx_positive
from .gamma import log_gamma_near_two, log_gamma_positive, stirling_rest

comptime _MOST_TERMS = 5000

# Temme's uniform expansion (N. Temme, SIAM J. Math. Anal. 10 (1979)): powers of eta, the highest
# first, by the power of 1 / a.
comptime _TEMME_0: List[Float64] = [
    -5.830772132550426e-11,
    -2.5514193994946248e-11,
    9.14769958223679e-10,
    -4.382036018453353e-09,
    1.0261809784240309e-08,
    6.707853543401498e-09,
    -1.7665952736826078e-07,
    8.296711340953087e-07,
    -1.85406221071516e-06,
    -2.185448510679992e-06,
    3.919263178522438e-05,
    -0.0001787551440329218,
    0.0003527336860670194,
    0.0011574074074074073,
    -0.014814814814814815,
    0.08333333333333333,
    -0.3333333333333333,
]
comptime _TEMME_1: List[Float64] = [
    -1.0091543710600413e-09,
    -1.7543241719747647e-11,
    1.1951628599778148e-08,
    -5.752545603517705e-08,
    1.378633446915721e-07,
    4.647127802807434e-09,
    -1.6120900894563446e-06,
    7.64916091608111e-06,
    -1.8098550334489977e-05,
    -4.018775720164609e-07,
    0.00020576131687242798,
    -0.0009902263374485596,
    0.0026455026455026454,
    -0.003472222222222222,
    -0.001851851851851852,
]
comptime _TEMME_2: List[Float64] = [
    -1.409252991086752e-08,
    -2.0477098421990866e-10,
    1.4280614206064242e-07,
    -6.298992138380055e-07,
    1.3721957309062934e-06,
    3.423578734096138e-08,
    -1.2760635188618728e-05,
    5.2923448829120125e-05,
    -0.0001073665322636516,
    2.0093878600823047e-06,
    0.0007716049382716049,
    -0.0026813271604938273,
    0.004133597883597883,
]
comptime _TEMME_3: List[Float64] = [
    -1.6958404091930278e-07,
    -2.7861080291528143e-11,
    1.4230900732435883e-06,
    -5.6749528269915965e-06,
    1.1082654115347302e-05,
    -2.396505113867297e-07,
    -7.561801671883977e-05,
    0.00026772063206283885,
    -0.0004691894943952557,
    0.00022947209362139917,
    0.0006494341563786008,
]
comptime _TEMME_4: List[Float64] = [
    -1.6954149536558305e-06,
    2.507497226237533e-10,
    1.1375726970678419e-05,
    -3.968365047179435e-05,
    6.641498215465122e-05,
    -1.4638452578843418e-06,
    -0.0002990724803031902,
    0.0007840392217200666,
    -0.0008618882909167117,
]
comptime _TEMME_5: List[Float64] = [
    -1.3594048189768693e-05,
    1.419062920643967e-07,
    6.797780477937208e-05,
    -0.00019932570516188847,
    0.0002772753244959392,
    -6.972813758365857e-05,
    -0.00033679855336635813,
]
comptime _TEMME_6: List[Float64] = [
    -8.153969367561969e-05,
    7.902353232660328e-07,
    0.0002708782096718045,
    -0.0005921664373536939,
    0.0005313079364639922,
]
comptime _TEMME_7: List[Float64] = [
    -0.00033493161081142234,
    5.171790908260592e-05,
    0.00034436760689237765,
]


# 2 / 37, 2 / 35, ..., 2 / 3
comptime _ARTANH: List[Float64] = [
    0.05405405405405406,
    0.05714285714285714,
    0.06060606060606061,
    0.06451612903225806,
    0.06896551724137931,
    0.07407407407407407,
    0.08,
    0.08695652173913043,
    0.09523809523809523,
    0.10526315789473684,
    0.11764705882352941,
    0.13333333333333333,
    0.15384615384615385,
    0.18181818181818182,
    0.2222222222222222,
    0.2857142857142857,
    0.4,
    0.6666666666666666,
]


@always_inline
def _log1p_minus[w: SIMDLength](m: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """`log(1 + m) - m`, with all digits for a small `m`."""
    var s = m / (2 + m)
    var square = s * s
    var near = s * square * horner[_ARTANH](square) - s * m
    return abs(m).gt(0.5).select(log1p64(m) - m, near)


@always_inline
def power_over_gamma[
    w: SIMDLength
](a: SIMD[DType.float64, w], x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """`x**a exp(-x) / gamma(a)` of positive numbers."""
    comptime F = SIMD[DType.float64, w]
    var small = a.lt(10)
    var high, low = log_pair(x)
    var product = a * high
    var lost = a.fma(high, -product) + a * low
    var exponent = (product - x) - log_gamma_positive(a)
    var far = a * _log1p_minus((x - a) / a) - stirling_rest(a)
    var scale = small.select(F(1), sqrt(a * (0.5 / PI)))
    return scale * exp64(small.select(exponent, far), small.select(lost, F(0)))


@always_inline
def _lower_series(a: Float64, x: Float64, factor: Float64, epsilon: Float64) -> Float64:
    """P(a, x): DLMF 8.11.4; `factor` is that of `power_over_gamma`."""
    var term = Float64(1)
    var sum = Float64(1)
    for n in range(1, _MOST_TERMS):
        term *= x / (a + Float64(n))
        sum += term
        if term <= epsilon * sum:
            break
    return factor / a * sum


@always_inline
def _upper_series(a: Float64, x: Float64, epsilon: Float64) -> Float64:
    """Q(a, x) of a small `x`: 1 - x**a / gamma(1 + a) without its cancellation, and the rest of
    DLMF 8.7.3."""
    var term = Float64(1)
    var sum = Float64(0)
    for n in range(1, _MOST_TERMS):
        term *= -x / Float64(n)
        var last = term / (a + Float64(n))
        sum += last
        if abs(last) <= epsilon * abs(sum):
            break
    var log_gamma = log_gamma_positive(a + 1)
    if a < 0.5:
        log_gamma = log_gamma_near_two(a) - log1p64(a)
    var exponent = a * log64(x) - log_gamma
    return -_expm1(exponent, epsilon) - exp64(exponent) * a * sum


@always_inline
def _expm1(x: Float64, epsilon: Float64) -> Float64:
    if abs(x) > 0.5:
        return exp64(x) - 1
    var term = x
    var sum = x
    for n in range(2, 20):
        term *= x / Float64(n)
        sum += term
        if abs(term) <= epsilon * abs(sum):
            break
    return sum


@always_inline
def _upper_fraction(
    a: Float64, x: Float64, factor: Float64, epsilon: Float64
) -> Float64:
    """Q(a, x) by Legendre's continued fraction, DLMF 8.9.2, from its front: numerators and
    denominators of its convergents, scaled down in time."""
    var b = x + 1 - a
    var over = Float64(1)
    var over_before = Float64(0)
    var below = b
    var below_before = Float64(1)
    var value = over / below
    for n in range(1, _MOST_TERMS):
        var k = Float64(n)
        var numerator = k * (a - k)
        b += 2
        var over_next = b * over + numerator * over_before
        var below_next = b * below + numerator * below_before
        over_before = over
        below_before = below
        over = over_next
        below = below_next
        if abs(below) > 1e150:
            over *= 1e-150
            below *= 1e-150
            over_before *= 1e-150
            below_before *= 1e-150
        var last = value
        value = over / below
        if abs(value - last) <= epsilon * abs(value):
            break
    return factor * value


def _uniform(a: Float64, x: Float64, upper: Bool) -> Float64:
    """Temme's expansion for a large `a` and an `x` near it."""
    var m = (x - a) / a
    var half_square = -_log1p_minus(m)
    var eta = sqrt(2 * half_square)
    if m < 0:
        eta = -eta
    var inverse = 1 / a
    var sum = horner[_TEMME_7](eta)
    sum = sum.fma(inverse, horner[_TEMME_6](eta))
    sum = sum.fma(inverse, horner[_TEMME_5](eta))
    sum = sum.fma(inverse, horner[_TEMME_4](eta))
    sum = sum.fma(inverse, horner[_TEMME_3](eta))
    sum = sum.fma(inverse, horner[_TEMME_2](eta))
    sum = sum.fma(inverse, horner[_TEMME_1](eta))
    sum = sum.fma(inverse, horner[_TEMME_0](eta))
    var rest = sum / sqrt(2 * PI * a)
    var scale = exp64(-a * half_square)
    var half = 0.5 * erfcx_positive(abs(eta) * sqrt(0.5 * a))
    # The smaller of P and Q first, since only that has all its digits.
    var smaller = scale * (half + (rest if m >= 0 else -rest))
    return smaller if (m >= 0) == upper else 1 - smaller


def regularized_gamma(
    a: Float64, x: Float64, factor: Float64, upper: Bool, epsilon: Float64
) -> Float64:
    """Q(a, x) if `upper`, else P(a, x), but for about `epsilon` of it; `factor` is that of
    `power_over_gamma`."""
    if isnan(a) or isnan(x) or a < 0 or x < 0:
        return NAN
    var all = Float64(1) if upper else Float64(0)
    if a == 0:
        return 1 - all if x > 0 else NAN
    if a == INF:
        return NAN if x == INF else all
    if x == 0:
        return all
    if x == INF:
        return 1 - all
    if a > 100 and abs(x - a) < 0.3 * a:
        return _uniform(a, x, upper)
    if x <= 1.1:
        if upper and (-0.4 / log64(x) >= a if x <= 0.5 else x * 1.1 >= a):
            return _upper_series(a, x, epsilon)
        var lower = _lower_series(a, x, factor, epsilon)
        return 1 - lower if upper else lower
    if x < a:
        var lower = _lower_series(a, x, factor, epsilon)
        return 1 - lower if upper else lower
    var result = _upper_fraction(a, x, factor, epsilon)
    return result if upper else 1 - result
