"""Orthogonal polynomials by their recurrences: DLMF 18.9.1."""

from std.math import sqrt, trunc

from .double import NAN, acos64, sin_cos64

# Beyond this degree Chebyshev polynomials of [-1, 1] are trigonometric: DLMF 18.5.1 to 18.5.4.
comptime _LONGEST = 30


@always_inline
def orthogonal[
    w: SIMDLength, //, kind: StaticString, most: Int
](x: SIMD[DType.float64, w], degree: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    """The polynomial of a degree, which is rounded towards 0; 0 for a negative degree.

    Parameters:
        w: How many lanes.
        kind: "t", "u", "v" or "w" (Chebyshev), "h" or "he" (Hermite), "l" (Laguerre) or "p"
            (Legendre).
        most: The highest degree of Hermite polynomials; NaN beyond.
    """
    comptime F = SIMD[DType.float64, w]
    comptime is_chebyshev = kind == "t" or kind == "u" or kind == "v" or kind == "w"
    # What no integer holds counts as negative.
    var n = abs(degree).lt(9.2e18).select(trunc(degree), F(-1))
    var one = F(1)
    var p = one
    var q = x
    comptime if kind == "u" or kind == "h":
        q = x + x
    comptime if kind == "v":
        q = x + x - 1
    comptime if kind == "w":
        q = x + x + 1
    comptime if kind == "l":
        q = 1 - x
    var result = n.ge(1).select(q, one)
    var last = n
    comptime if is_chebyshev:
        last = (n.gt(_LONGEST) & abs(x).le(1)).select(F(0), n)
    comptime if kind == "h" or kind == "he":
        last = n.gt(Float64(most)).select(F(0), n)
    comptime if kind == "p":
        last = abs(x).eq(1).select(F(0), n)
    var k = Float64(1)
    var active = last.gt(1)
    while active.reduce_or():
        var r: F
        comptime if kind == "h":
            r = (x + x) * q - (2 * k) * p
        elif kind == "he":
            r = x * q - k * p
        elif kind == "l":
            r = ((2 * k + 1 - x) * q - k * p) / (k + 1)
        elif kind == "p":
            r = ((2 * k + 1) * x * q - k * p) / (k + 1)
        else:
            r = (x + x) * q - p
        result = active.select(r, result)
        p = q
        q = r
        k += 1
        active = last.gt(k) & q.eq(q)
    var odd = (n - 2 * trunc(0.5 * n)).ne(0)
    var sign = (odd & x.lt(0)).select(-one, one)
    comptime if is_chebyshev:
        var far = n.gt(_LONGEST) & abs(x).le(1)
        if far.reduce_or():
            result = far.select(_trigonometric[kind](x, n, sign), result)
    comptime if kind == "h" or kind == "he":
        result = n.gt(Float64(most)).select(F(NAN), result)
    comptime if kind == "p":
        result = (abs(x).eq(1) & n.gt(1)).select(sign, result)
    comptime if kind == "l":
        result = x.eq(0).select(one, result)
    return n.lt(0).select(F(0), result)


@always_inline
def _trigonometric[
    w: SIMDLength, //, kind: StaticString
](
    x: SIMD[DType.float64, w], n: SIMD[DType.float64, w], sign: SIMD[DType.float64, w]
) -> SIMD[DType.float64, w]:
    """Chebyshev polynomials of `abs(x)` up to 1; at its ends `sign` is that of the result."""
    var angle = acos64(x)
    comptime if kind == "t":
        return sin_cos64(n * angle)[1]
    elif kind == "u":
        var below = sqrt((1 - x) * (1 + x))
        var result = sin_cos64((n + 1) * angle)[0] / below
        return abs(x).eq(1).select(sign * (n + 1), result)
    elif kind == "v":
        var below = sqrt(0.5 + 0.5 * x)
        var result = sin_cos64((n + 0.5) * angle)[1] / below
        return x.eq(-1).select(sign * (2 * n + 1), result)
    else:
        var below = sqrt(0.5 - 0.5 * x)
        var result = sin_cos64((n + 0.5) * angle)[0] / below
        return x.eq(1).select(2 * n + 1, result)
