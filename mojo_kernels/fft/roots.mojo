"""Roots of unity, and the twiddles of a length's passes. Computed in float64."""

from std.math import fma
from std.sys import simd_width_of

from ..core.memory import Address
from .butterflies import RADICES

comptime TWO_PI = 6.283185307179586476925286766559


@always_inline
def _sine[width: SIMDLength](x: SIMD[DType.float64, width]) -> SIMD[DType.float64, width]:
    """The sine of up to pi / 4 (coefficients of FreeBSD's msun, k_sin.c)."""
    var z = x * x
    var r = fma(
        z,
        SIMD[DType.float64, width](1.58969099521155010221e-10),
        SIMD[DType.float64, width](-2.50507602534068634195e-08),
    )
    r = fma(z, r, SIMD[DType.float64, width](2.75573137070700676789e-06))
    r = fma(z, r, SIMD[DType.float64, width](-1.98412698298579493134e-04))
    r = fma(z, r, SIMD[DType.float64, width](8.33333333332248946124e-03))
    r = fma(z, r, SIMD[DType.float64, width](-1.66666666666666324348e-01))
    return fma(z * x, r, x)


@always_inline
def _cosine[width: SIMDLength](x: SIMD[DType.float64, width]) -> SIMD[DType.float64, width]:
    """The cosine of up to pi / 4 (coefficients of FreeBSD's msun, k_cos.c)."""
    var z = x * x
    var r = fma(
        z,
        SIMD[DType.float64, width](-1.13596475577881948265e-11),
        SIMD[DType.float64, width](2.08757232129817482790e-09),
    )
    r = fma(z, r, SIMD[DType.float64, width](-2.75573143513906633035e-07))
    r = fma(z, r, SIMD[DType.float64, width](2.48015872894767294178e-05))
    r = fma(z, r, SIMD[DType.float64, width](-1.38888888888741095749e-03))
    r = fma(z, r, SIMD[DType.float64, width](4.16666666666666019037e-02))
    var half = z * 0.5
    var w = 1.0 - half
    return w + (((1.0 - w) - half) + z * z * r)


@always_inline
def root[
    width: SIMDLength
](k: SIMD[DType.int64, width], n: Int) -> Tuple[
    SIMD[DType.float64, width], SIMD[DType.float64, width]
]:
    """`exp(-2 pi i k / n)` for `0 <= k < n`: the angle is brought into an eighth
    of the circle in integers, which is exact."""
    var full = SIMD[DType.int64, width](Int64(n))
    var j = k
    # The lower half of the circle mirrors the upper one, and so on.
    var below = (j + j).gt(full)
    j = below.select(full - j, j)
    var left = (4 * j).gt(full)
    # From here on in halves of a step, so that n / 2 and n / 4 are whole.
    var j2 = left.select(full - 2 * j, 2 * j)
    var steep = (4 * j2).gt(full)
    # In quarters of a step.
    var j4 = steep.select(full - 2 * j2, 2 * j2)
    var angle = j4.cast[DType.float64]() * (TWO_PI / 4) / Float64(n)
    var s = _sine(angle)
    var c = _cosine(angle)
    var cosine = steep.select(s, c)
    var sine = steep.select(c, s)
    cosine = left.select(-cosine, cosine)
    sine = below.select(-sine, sine)
    return (cosine, -sine)


# Lengths from which lines are transformed one by one: several would leave the nearest cache.
comptime LONG = 256


struct Plan(TrivialRegisterPassable):
    """The radices of a length, one number each: factor by factor.

    Attributes:
        n: The length.
        alone: Whether lines are transformed one at a time, by vectors along them: the first radix
            is 16, so that later passes find as many neighbours with the same twiddles.
    """

    var n: Int
    var alone: Bool

    @always_inline
    def __init__(out self, n: Int, alone: Bool = False):
        self.n = n
        self.alone = alone and n % 16 == 0 and n >= LONG

    @always_inline
    def radix(self, length: Int) -> Int:
        """The radix of the pass over what is left of the length."""
        if self.alone:
            if length == self.n:
                return 16
            if length % 8 == 0 and length != 16:
                return 8
        # Not for powers of two alone: what lies 4 KiB apart shares a set of the nearest cache.
        elif length % 16 == 8 and length > 8:
            return 8
        comptime for i in range(1, RADICES.size):
            if length % RADICES[i] == 0:
                return RADICES[i]
        var p = 11
        while p * p <= length:
            if length % p == 0:
                return p
            p += 2
        return length


def largest_prime(n: Int) -> Int:
    """The largest prime factor of a length; 1 of 1."""
    var rest = n
    var largest = 1
    var p = 2
    while p * p <= rest:
        while rest % p == 0:
            rest //= p
            largest = p
        p += 1
    return max(largest, rest)


@always_inline
def table_size(plan: Plan) -> Int:
    """Numbers in the twiddle table of a length."""
    # Passes with radix r over what is left, l, take (r - 1) * l / r pairs, the
    # roots of unity of a large radix r pairs.
    var length = plan.n
    var total = 0
    while length > 1:
        var radix = plan.radix(length)
        total += 2 * (radix - 1) * (length // radix) + 2 * radix
        length //= radix
    return total


def fill_table[dtype: DType](table: Address[dtype], plan: Plan):
    """The twiddles of each pass in order: planes `[radix - 1, m]` of real and of
    imaginary parts of `exp(-2 pi i p k / length)`, then the roots of unity of
    the radix."""
    comptime width = simd_width_of[DType.float64]()
    var length = plan.n
    var to = table
    while length > 1:
        var radix = plan.radix(length)
        var m = length // radix
        var plane = (radix - 1) * m
        for k in range(1, radix):
            var row = to.unsafe_offset((k - 1) * m)
            var p = 0
            while p + width <= m:
                var j = SIMD[DType.int64, width](0)
                comptime for lane in range(width):
                    j[lane] = Int64((p + lane) * k)
                var (re, im) = root(j, length)
                row.unsafe_store(p, re.cast[dtype]())
                row.unsafe_store(plane + p, im.cast[dtype]())
                p += width
            while p < m:
                var (re, im) = root(SIMD[DType.int64, 1](Int64(p * k)), length)
                row[unsafe_offset=p] = re.cast[dtype]()
                row[unsafe_offset = plane + p] = im.cast[dtype]()
                p += 1
        to = to.unsafe_offset(2 * plane)
        for k in range(radix):
            var (re, im) = root(SIMD[DType.int64, 1](Int64(k)), radix)
            to[unsafe_offset=k] = re.cast[dtype]()
            to[unsafe_offset = radix + k] = im.cast[dtype]()
        to = to.unsafe_offset(2 * radix)
        length = m
