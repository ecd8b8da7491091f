"""The scaled complementary error function, and inverses of the normal distribution."""

from std.math import sqrt

from .double import INF, NAN, chebyshev_sum, exp64, horner, log1p64, log64

# Chebyshev coefficients of (1 + 2x) erfcx(x) over (x - 3.75) / (x + 3.75), the form of M. Shepherd
# and J. Laframboise, Math. Comp. 36 (1981), to 17 digits.
comptime _ERFCX: List[Float64] = [
    5.068148904796111e-17,
    7.418235256624044e-17,
    -1.2507950530688648e-15,
    -1.864562880419313e-15,
    3.3478119482868056e-14,
    3.25254814814874e-14,
    -9.65469674843344e-13,
    1.9455868545777347e-13,
    2.86879501093067e-11,
    -6.318088340886684e-11,
    -7.754400208831351e-10,
    4.521959811218287e-09,
    1.076499946567091e-08,
    -2.1886401049234397e-07,
    7.74038306619849e-07,
    4.13902798607301e-06,
    -6.916973302501207e-05,
    0.0004907758365258086,
    -0.002413163540417608,
    0.009074997670705265,
    -0.026658668435305753,
    0.05920993999819189,
    -0.08424913336651792,
    -0.004590054580646478,
    2.3551578691348034,
]

comptime _SQRT_HALF = 0.7071067811865476


@always_inline
def _square_rest[
    w: SIMDLength
](x: SIMD[DType.float64, w], square: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """What `x * x` was rounded by."""
    var rest = x.fma(x, -square)
    return square.lt(800).select(rest, SIMD[DType.float64, w](0))


@always_inline
def erfcx_positive[
    w: SIMDLength
](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """`exp(x**2) erfc(x)` for `x` from 0 on."""
    var t = (x - 3.75) / (x + 3.75)
    var result = chebyshev_sum[_ERFCX](2 * t) / (2 * x + 1)
    return x.eq(INF).select(SIMD[DType.float64, w](0), result)


@always_inline
def erfcx64[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    var result = erfcx_positive(abs(x))
    var square = x * x
    var mirrored = 2 * exp64(square, _square_rest(x, square)) - result
    return x.lt(0).select(mirrored, result)


@always_inline
def log_ndtr64[w: SIMDLength](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The logarithm of the normal distribution function."""
    var square = x * x
    var half_erfcx = 0.5 * erfcx_positive(abs(x) * _SQRT_HALF)
    var tail = half_erfcx * exp64(-0.5 * square, -0.5 * _square_rest(x, square))
    var low = log64(half_erfcx) - 0.5 * square
    var high = log1p64(x.lt(0).select(tail - 1, -tail))
    return x.lt(-1).select(low, high)


# Coefficients of M. Wichura, algorithm AS 241, Applied Statistics 37 (1988).
comptime _CENTRE: List[Float64] = [
    2509.0809287301227,
    33430.57558358813,
    67265.7709270087,
    45921.95393154987,
    13731.69376550946,
    1971.5909503065513,
    133.14166789178438,
    3.3871328727963665,
]
comptime _CENTRE_BELOW: List[Float64] = [
    5226.495278852854,
    28729.085735721943,
    39307.89580009271,
    21213.794301586597,
    5394.196021424751,
    687.1870074920579,
    42.31333070160091,
    1.0,
]
comptime _TAIL: List[Float64] = [
    0.0007745450142783414,
    0.022723844989269184,
    0.2417807251774506,
    1.2704582524523684,
    3.6478483247632045,
    5.769497221460691,
    4.630337846156546,
    1.4234371107496835,
]
comptime _TAIL_BELOW: List[Float64] = [
    1.0507500716444169e-09,
    0.0005475938084995345,
    0.015198666563616457,
    0.14810397642748008,
    0.6897673349851,
    1.6763848301838038,
    2.053191626637759,
    1.0,
]
comptime _FAR: List[Float64] = [
    2.0103343992922881e-07,
    2.7115555687434876e-05,
    0.0012426609473880784,
    0.026532189526576124,
    0.29656057182850487,
    1.7848265399172913,
    5.463784911164114,
    6.657904643501103,
]
comptime _FAR_BELOW: List[Float64] = [
    2.0442631033899397e-15,
    1.421511758316446e-07,
    1.8463183175100548e-05,
    0.0007868691311456133,
    0.014875361290850615,
    0.1369298809227358,
    0.599832206555888,
    1.0,
]


@always_inline
def _quantile[
    w: SIMDLength
](q: SIMD[DType.float64, w], tail: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The normal quantile of `0.5 + q`, which lies `tail` from the nearer of 0 and 1."""
    comptime F = SIMD[DType.float64, w]
    var r = 0.180625 - q * q
    var result = q * horner[_CENTRE](r) / horner[_CENTRE_BELOW](r)
    var outer = abs(q).gt(0.425)
    if outer.reduce_or():
        r = sqrt(-log64(outer.select(tail, F(0.5))))
        var near = r - 1.6
        var size = horner[_TAIL](near) / horner[_TAIL_BELOW](near)
        var far = r - 5
        var beyond = r.gt(5)
        if beyond.reduce_or():
            size = beyond.select(horner[_FAR](far) / horner[_FAR_BELOW](far), size)
        size = tail.eq(0).select(F(INF), tail.lt(0).select(F(NAN), size))
        result = outer.select(q.lt(0).select(-size, size), result)
    return result


@always_inline
def erfinv64[w: SIMDLength](y: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    return _SQRT_HALF * _quantile(0.5 * y, 0.5 - 0.5 * abs(y))


@always_inline
def ndtri64[w: SIMDLength](p: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The inverse of the normal distribution function."""
    return _quantile(p - 0.5, p.lt(0.5).select(p, 1 - p))
