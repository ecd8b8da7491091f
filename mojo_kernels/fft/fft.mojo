"""Fourier transforms of lines: mixed radix by Stockham's passes, which need no
reordering (P. N. Swarztrauber, "FFT algorithms for vector computers", 1984), and
Bluestein's convolution for lengths with a large prime factor.

Complex numbers are pairs, real part first. Twiddles are computed in float64.
Inside, a line is two planes (real parts, imaginary parts) and each transform is
the forward one: swapping the planes on the way in and out makes the inverse."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.algorithm import elementwise
from max.gpu.host import DeviceContext
from std.math import ceildiv, fma, sqrt
from std.memory import Pointer
from std.sys import simd_width_of

from ..gemm.panels import Address, transpose
from ..core.team import parallelism_level, sync_parallelize

# Factors of a length: 2**63 has fewer.
comptime MOST_PASSES = 64
# Larger prime factors go through Bluestein's convolution on CPU.
comptime LARGEST_RADIX = 61
# Lines of at most this many elements are transformed several at a time.
comptime SHORT = 512
# Steps that a task should have at least.
comptime GRAIN = 32768
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
def _root[
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


@fieldwise_init
struct Plan(TrivialRegisterPassable):
    """The radices of a length, one number each: factor by factor."""

    var n: Int
    # The largest prime factor.
    var largest: Int

    @staticmethod
    def of(n: Int) -> Plan:
        var rest = n
        var largest = 1
        var p = 2
        while p * p <= rest:
            while rest % p == 0:
                rest //= p
                largest = p
            p += 1
        return Plan(n, max(largest, rest))

    @always_inline
    def radix(self, length: Int) -> Int:
        """The radix of the pass over what is left of the length."""
        if length % 4 == 0:
            return 4
        if length % 2 == 0:
            return 2
        if length % 3 == 0:
            return 3
        if length % 5 == 0:
            return 5
        var p = 7
        while p * p <= length:
            if length % p == 0:
                return p
            p += 2
        return length


@always_inline
def _table_size(n: Int) -> Int:
    """Numbers in the twiddle table of a length."""
    # Passes with radix r over what is left, l, take (r - 1) * l / r pairs, the
    # roots of unity of a large radix r pairs.
    var plan = Plan(n, 0)
    var length = n
    var total = 0
    while length > 1:
        var radix = plan.radix(length)
        total += 2 * (radix - 1) * (length // radix) + 2 * radix
        length //= radix
    return total


def _fill_table[dtype: DType](table: Address[dtype], n: Int):
    """The twiddles of each pass in order: planes `[radix - 1, m]` of real and of
    imaginary parts of `exp(-2 pi i p k / length)`, then the roots of unity of
    the radix."""
    comptime width = simd_width_of[DType.float64]()
    var plan = Plan(n, 0)
    var length = n
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
                var (re, im) = _root(j, length)
                row.unsafe_store(p, re.cast[dtype]())
                row.unsafe_store(plane + p, im.cast[dtype]())
                p += width
            while p < m:
                var (re, im) = _root(SIMD[DType.int64, 1](Int64(p * k)), length)
                row[unsafe_offset=p] = re.cast[dtype]()
                row[unsafe_offset = plane + p] = im.cast[dtype]()
                p += 1
        to = to.unsafe_offset(2 * plane)
        for k in range(radix):
            var (re, im) = _root(SIMD[DType.int64, 1](Int64(k)), radix)
            to[unsafe_offset=k] = re.cast[dtype]()
            to[unsafe_offset = radix + k] = im.cast[dtype]()
        to = to.unsafe_offset(2 * radix)
        length = m


comptime Lanes[dtype: DType, width: Int, radix: Int] = Array[SIMD[dtype, width], radix]


@always_inline
def _butterfly[
    dtype: DType, width: Int, radix: Int
](mut re: Lanes[dtype, width, radix], mut im: Lanes[dtype, width, radix]):
    """The transform of `radix` numbers, in place."""
    comptime if radix == 2:
        var ar = re[0] - re[1]
        var ai = im[0] - im[1]
        re[0] = re[0] + re[1]
        im[0] = im[0] + im[1]
        re[1] = ar
        im[1] = ai
    elif radix == 3:
        comptime half_root = 0.866025403784438646763723170752936
        var sr = re[1] + re[2]
        var si = im[1] + im[2]
        var dr = (im[1] - im[2]) * Scalar[dtype](half_root)
        var di = (re[2] - re[1]) * Scalar[dtype](half_root)
        var mr = re[0] - sr * Scalar[dtype](0.5)
        var mi = im[0] - si * Scalar[dtype](0.5)
        re[0] = re[0] + sr
        im[0] = im[0] + si
        re[1] = mr + dr
        im[1] = mi + di
        re[2] = mr - dr
        im[2] = mi - di
    elif radix == 4:
        var ar = re[0] + re[2]
        var ai = im[0] + im[2]
        var br = re[0] - re[2]
        var bi = im[0] - im[2]
        var cr = re[1] + re[3]
        var ci = im[1] + im[3]
        var dr = im[1] - im[3]
        var di = re[3] - re[1]
        re[0] = ar + cr
        im[0] = ai + ci
        re[1] = br + dr
        im[1] = bi + di
        re[2] = ar - cr
        im[2] = ai - ci
        re[3] = br - dr
        im[3] = bi - di
    else:
        comptime assert radix == 5, "no such butterfly"
        comptime c1 = 0.309016994374947424102293417182819
        comptime c2 = -0.809016994374947424102293417182819
        comptime s1 = 0.951056516295153572116439333379382
        comptime s2 = 0.587785252292473129168705954639073
        var pr = re[1] + re[4]
        var pi = im[1] + im[4]
        var qr = re[2] + re[3]
        var qi = im[2] + im[3]
        var ur = re[1] - re[4]
        var ui = im[1] - im[4]
        var vr = re[2] - re[3]
        var vi = im[2] - im[3]
        var ar = re[0] + pr * Scalar[dtype](c1) + qr * Scalar[dtype](c2)
        var ai = im[0] + pi * Scalar[dtype](c1) + qi * Scalar[dtype](c2)
        var br = re[0] + pr * Scalar[dtype](c2) + qr * Scalar[dtype](c1)
        var bi = im[0] + pi * Scalar[dtype](c2) + qi * Scalar[dtype](c1)
        var cr = ui * Scalar[dtype](s1) + vi * Scalar[dtype](s2)
        var ci = ur * Scalar[dtype](s1) + vr * Scalar[dtype](s2)
        var dr = ui * Scalar[dtype](s2) - vi * Scalar[dtype](s1)
        var di = ur * Scalar[dtype](s2) - vr * Scalar[dtype](s1)
        re[0] = re[0] + pr + qr
        im[0] = im[0] + pi + qi
        re[1] = ar + cr
        im[1] = ai - ci
        re[4] = ar - cr
        im[4] = ai + ci
        re[2] = br + dr
        im[2] = bi - di
        re[3] = br - dr
        im[3] = bi + di


@always_inline
def _one[
    dtype: DType, //, radix: Int, width: Int
](
    xr: Address[dtype],
    xi: Address[dtype],
    far: Int,
    mut re: Lanes[dtype, width, radix],
    mut im: Lanes[dtype, width, radix],
):
    """Loads what stands `far` apart and transforms it."""
    comptime for k in range(radix):
        re[k] = xr.unsafe_load[width=width](k * far)
        im[k] = xi.unsafe_load[width=width](k * far)
    _butterfly[dtype, width, radix](re, im)


@always_inline
def _columns[
    dtype: DType, //, radix: Int, width: Int
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    far: Int,
    stride: Int,
    start: Int,
    end: Int,
    wr: Lanes[dtype, 1, radix],
    wi: Lanes[dtype, 1, radix],
):
    """Neighbours with the same twiddles, `width` at a time."""
    var re = Lanes[dtype, width, radix](fill=0)
    var im = Lanes[dtype, width, radix](fill=0)
    var q = start
    while q + width <= end:
        _one[radix, width](xr.unsafe_offset(q), xi.unsafe_offset(q), far, re, im)
        yr.unsafe_store(q, re[0])
        yi.unsafe_store(q, im[0])
        comptime for k in range(1, radix):
            var a = SIMD[dtype, width](wr[k][0])
            var b = SIMD[dtype, width](wi[k][0])
            yr.unsafe_store(q + k * stride, re[k] * a - im[k] * b)
            yi.unsafe_store(q + k * stride, re[k] * b + im[k] * a)
        q += width


@no_inline
def _pass[
    dtype: DType, //, radix: Int
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    table: Address[dtype],
    m: Int,
    stride: Int,
):
    """One pass: `y[q + s (r p + k)] = w**(p k) sum over j of x[q + s (p + m j)] w_r**(j k)`
    for `q < s`, `p < m`, `k < r`."""
    comptime width = simd_width_of[dtype]()
    comptime narrow = 4
    var plane = (radix - 1) * m
    var wr = Lanes[dtype, 1, radix](fill=1)
    var wi = Lanes[dtype, 1, radix](fill=0)
    var far = stride * m
    if stride == 1:
        _first_pass[radix](xr, xi, yr, yi, table, m)
        return
    for p in range(m):
        comptime for k in range(1, radix):
            wr[k] = table[unsafe_offset = (k - 1) * m + p]
            wi[k] = table[unsafe_offset = plane + (k - 1) * m + p]
        var ar = xr.unsafe_offset(stride * p)
        var ai = xi.unsafe_offset(stride * p)
        var br = yr.unsafe_offset(stride * p * radix)
        var bi = yi.unsafe_offset(stride * p * radix)
        var whole = stride // width * width
        var most = stride // narrow * narrow
        if whole > 0:
            _columns[radix, width](ar, ai, br, bi, far, stride, 0, whole, wr, wi)
        if most > whole:
            _columns[radix, narrow](ar, ai, br, bi, far, stride, whole, most, wr, wi)
        if stride > most:
            _columns[radix, 1](ar, ai, br, bi, far, stride, most, stride, wr, wi)


@always_inline
def _first_pass[
    dtype: DType, //, radix: Int
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    table: Address[dtype],
    m: Int,
):
    """The pass with stride 1: neighbours have twiddles of their own, and the
    results of one butterfly stand side by side."""
    comptime width = simd_width_of[dtype]()
    var plane = (radix - 1) * m
    var re = Lanes[dtype, width, radix](fill=0)
    var im = Lanes[dtype, width, radix](fill=0)
    var p = 0
    while p + width <= m:
        _one[radix, width](xr.unsafe_offset(p), xi.unsafe_offset(p), m, re, im)
        comptime for k in range(1, radix):
            var a = table.unsafe_load[width=width]((k - 1) * m + p)
            var b = table.unsafe_load[width=width](plane + (k - 1) * m + p)
            var c = re[k]
            re[k] = c * a - im[k] * b
            im[k] = c * b + im[k] * a
        _woven(re, yr.unsafe_offset(radix * p))
        _woven(im, yi.unsafe_offset(radix * p))
        p += width
    var one_re = Lanes[dtype, 1, radix](fill=0)
    var one_im = Lanes[dtype, 1, radix](fill=0)
    while p < m:
        _one[radix, 1](xr.unsafe_offset(p), xi.unsafe_offset(p), m, one_re, one_im)
        yr[unsafe_offset = radix * p] = one_re[0][0]
        yi[unsafe_offset = radix * p] = one_im[0][0]
        comptime for k in range(1, radix):
            var a = table[unsafe_offset = (k - 1) * m + p]
            var b = table[unsafe_offset = plane + (k - 1) * m + p]
            yr[unsafe_offset = radix * p + k] = (one_re[k] * a - one_im[k] * b)[0]
            yi[unsafe_offset = radix * p + k] = (one_re[k] * b + one_im[k] * a)[0]
        p += 1


@always_inline
def _woven[
    dtype: DType, width: Int, radix: Int, //
](v: Lanes[dtype, width, radix], to: Address[dtype]):
    """Stores the first lane of each, then the second of each, and so on."""
    comptime if radix == 4:
        to.unsafe_store(0, v[0].interleave(v[2]).interleave(v[1].interleave(v[3])))
    elif radix == 2:
        to.unsafe_store(0, v[0].interleave(v[1]))
    else:
        comptime for lane in range(width):
            comptime for k in range(radix):
                to[unsafe_offset = lane * radix + k] = v[k][lane]


@no_inline
def _any_pass[
    dtype: DType, //
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    table: Address[dtype],
    radix: Int,
    m: Int,
    stride: Int,
):
    """`_pass` for any odd prime radix, by the sum as it is written."""
    comptime width = simd_width_of[dtype]()
    var plane = (radix - 1) * m
    var roots = table.unsafe_offset(2 * plane)
    for p in range(m):
        for k in range(radix):
            var wr = Scalar[dtype](1)
            var wi = Scalar[dtype](0)
            if k > 0:
                wr = table[unsafe_offset = (k - 1) * m + p]
                wi = table[unsafe_offset = plane + (k - 1) * m + p]
            var q = 0
            while q + width <= stride:
                _sum[width](
                    xr.unsafe_offset(q + stride * p),
                    xi.unsafe_offset(q + stride * p),
                    yr.unsafe_offset(q + stride * (p * radix + k)),
                    yi.unsafe_offset(q + stride * (p * radix + k)),
                    roots,
                    radix,
                    k,
                    stride * m,
                    wr,
                    wi,
                )
                q += width
            while q < stride:
                _sum[1](
                    xr.unsafe_offset(q + stride * p),
                    xi.unsafe_offset(q + stride * p),
                    yr.unsafe_offset(q + stride * (p * radix + k)),
                    yi.unsafe_offset(q + stride * (p * radix + k)),
                    roots,
                    radix,
                    k,
                    stride * m,
                    wr,
                    wi,
                )
                q += 1


@always_inline
def _sum[
    dtype: DType, //, width: Int
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    roots: Address[dtype],
    radix: Int,
    k: Int,
    far: Int,
    wr: Scalar[dtype],
    wi: Scalar[dtype],
):
    """One number of a butterfly. Terms that mirror each other are added first,
    so that the real and the imaginary part of a root each multiply once."""
    var first_re = xr.unsafe_load[width=width](0)
    var first_im = xi.unsafe_load[width=width](0)
    var re = first_re
    var im = first_im
    var turn = 0
    for j in range(1, (radix + 1) // 2):
        turn += k
        if turn >= radix:
            turn -= radix
        var c = roots[unsafe_offset=turn]
        var s = roots[unsafe_offset = radix + turn]
        var ar = xr.unsafe_load[width=width](j * far)
        var ai = xi.unsafe_load[width=width](j * far)
        var br = xr.unsafe_load[width=width]((radix - j) * far)
        var bi = xi.unsafe_load[width=width]((radix - j) * far)
        re += (ar + br) * c - (ai - bi) * s
        im += (ai + bi) * c + (ar - br) * s
    yr.unsafe_store(0, re * wr - im * wi)
    yi.unsafe_store(0, re * wi + im * wr)


@always_inline
def _transform[
    dtype: DType, //
](
    n: Int,
    lanes: Int,
    a: Address[dtype],
    b: Address[dtype],
    table: Address[dtype],
) -> Address[dtype]:
    """The transform of `lanes` lines, element by element side by side, in planes
    `[2, n, lanes]`; returns `a` or `b`, whichever holds it."""
    var plan = Plan(n, 0)
    var length = n
    var stride = lanes
    var x = a
    var y = b
    var size = n * lanes
    var twiddles = table
    while length > 1:
        var radix = plan.radix(length)
        var m = length // radix
        var xi = x.unsafe_offset(size)
        var yi = y.unsafe_offset(size)
        if radix == 4:
            _pass[4](x, xi, y, yi, twiddles, m, stride)
        elif radix == 2:
            _pass[2](x, xi, y, yi, twiddles, m, stride)
        elif radix == 3:
            _pass[3](x, xi, y, yi, twiddles, m, stride)
        elif radix == 5:
            _pass[5](x, xi, y, yi, twiddles, m, stride)
        else:
            _any_pass(x, xi, y, yi, twiddles, radix, m, stride)
        twiddles = twiddles.unsafe_offset(2 * (radix - 1) * m + 2 * radix)
        stride *= radix
        length = m
        swap(x, y)
    return x


struct Tables[dtype: DType](TrivialRegisterPassable):
    """What the transforms of one length share, at one address: the twiddles of
    the passes; for Bluestein's convolution the chirp and the transform of its
    inverse; for real lines of even length `exp(-2 pi i k / n)`."""

    var n: Int
    # Length of the passes: `n`, or that of the convolution.
    var length: Int
    var place: Pointer[Scalar[Self.dtype], UntrackedOrigin[mut=True]]
    var chirp: Int
    var filter: Int
    var halves: Int
    var size: Int

    def __init__(out self, n: Int, real: Int):
        """For transforms of `n` complex numbers, which stand for `real` real ones
        (or 0)."""
        self.n = n
        self.length = n
        if Plan.of(n).largest > LARGEST_RADIX:
            self.length = _smooth(2 * n - 1)
        self.chirp = _table_size(self.length)
        var extra = 0 if self.length == n else 2 * n
        self.filter = self.chirp + extra
        extra = 0 if self.length == n else 2 * self.length
        self.halves = self.filter + extra
        self.size = self.halves + (2 * (n // 2 + 1) if real != 0 else 0)
        self.place = Pointer[Scalar[Self.dtype], UntrackedOrigin[mut=True]](
            unsafe_from_address=8
        )

    @always_inline
    def start(self) -> Address[Self.dtype]:
        return self.place.unsafe_origin_cast[MutAnyOrigin]()

    @always_inline
    def convolves(self) -> Bool:
        return self.length != self.n

    def fill(mut self, at: Address[Self.dtype], scratch: Address[Self.dtype]):
        """Computes everything. `scratch` has room for four times the length."""
        self.place = at.unsafe_origin_cast[UntrackedOrigin[mut=True]]()
        _fill_table(at, self.length)
        if self.size > self.halves:
            for k in range(self.n // 2 + 1):
                self._put(self.halves, self.n // 2 + 1, k, k, 2 * self.n)
        if not self.convolves():
            return
        var n = self.n
        var m = self.length
        for j in range(n):
            self._put(self.chirp, n, j, j * j % (2 * n), 2 * n)
        var c = at.unsafe_offset(self.chirp)
        var share = 1 / Float64(m)
        for j in range(2 * m):
            scratch[unsafe_offset=j] = 0
        for j in range(n):
            var re = (c[unsafe_offset=j].cast[DType.float64]() * share).cast[Self.dtype]()
            var im = (c[unsafe_offset = n + j].cast[DType.float64]() * -share).cast[Self.dtype]()
            var mirror = (m - j) % m
            scratch[unsafe_offset=j] = re
            scratch[unsafe_offset = m + j] = im
            scratch[unsafe_offset=mirror] = re
            scratch[unsafe_offset = m + mirror] = im
        var found = _transform(m, 1, scratch, scratch.unsafe_offset(2 * m), at)
        var filter = at.unsafe_offset(self.filter)
        for j in range(2 * m):
            filter[unsafe_offset=j] = found[unsafe_offset=j]

    @always_inline
    def _put(self, table: Int, plane: Int, at: Int, k: Int, n: Int):
        var (re, im) = _root(SIMD[DType.int64, 1](Int64(k)), n)
        self.start()[unsafe_offset = table + at] = re.cast[Self.dtype]()
        self.start()[unsafe_offset = table + plane + at] = im.cast[Self.dtype]()

    @always_inline
    def transform[
        lanes: Int
    ](self, a: Address[Self.dtype], b: Address[Self.dtype]) -> Address[Self.dtype]:
        """The transform of planes `[2, n, lanes]` in `a`; returns `a` or `b`,
        whichever holds it."""
        if not self.convolves():
            return _transform(self.n, lanes, a, b, self.start())
        var n = self.n
        var m = self.length
        var size = n * lanes
        var most = m * lanes
        var cr = self.start().unsafe_offset(self.chirp)
        var ci = cr.unsafe_offset(n)
        # To planes of the longer length.
        for j in range(n):
            var re = a.unsafe_load[width=lanes](j * lanes)
            var im = a.unsafe_load[width=lanes](size + j * lanes)
            var c = cr[unsafe_offset=j]
            var d = ci[unsafe_offset=j]
            b.unsafe_store(j * lanes, re * c - im * d)
            b.unsafe_store(most + j * lanes, re * d + im * c)
        for j in range(size, most):
            b[unsafe_offset=j] = 0
            b[unsafe_offset = most + j] = 0
        var x = _transform(m, lanes, b, a, self.start())
        var other = b
        if x == b:
            other = a
        var fr = self.start().unsafe_offset(self.filter)
        var fi = fr.unsafe_offset(m)
        for j in range(m):
            var re = x.unsafe_load[width=lanes](j * lanes)
            var im = x.unsafe_load[width=lanes](most + j * lanes)
            var c = fr[unsafe_offset=j]
            var d = fi[unsafe_offset=j]
            # The planes change places: the inverse follows.
            x.unsafe_store(most + j * lanes, re * c - im * d)
            x.unsafe_store(j * lanes, re * d + im * c)
        var y = _transform(m, lanes, x, other, self.start())
        var to = x
        if y == x:
            to = other
        for j in range(n):
            var im = y.unsafe_load[width=lanes](j * lanes)
            var re = y.unsafe_load[width=lanes](most + j * lanes)
            var c = cr[unsafe_offset=j]
            var d = ci[unsafe_offset=j]
            to.unsafe_store(j * lanes, re * c - im * d)
            to.unsafe_store(size + j * lanes, re * d + im * c)
        return to


def _smooth(least: Int) -> Int:
    """The least length from `least` on with one factor other than 2, at most 5."""
    var best = 1
    while best < least:
        best *= 2
    for odd in range(3, 6, 2):
        var length = odd
        while length < least:
            length *= 2
        best = min(best, length)
    return best


@always_inline
def _load_pairs[
    dtype: DType, //, lanes: Int
](x: Address[dtype], row: Int, n: Int, planes: Address[dtype], size: Int, swapped: Bool):
    """`n` pairs of each of `lanes` lines, `row` numbers apart, into planes whose
    second begins at `size`."""
    comptime width = simd_width_of[dtype]()
    var first = planes.unsafe_offset(size if swapped else 0)
    var second = planes.unsafe_offset(0 if swapped else size)
    var j = 0
    comptime if lanes == 1:
        while j + width <= n:
            var (re, im) = x.unsafe_load[width = 2 * width](2 * j).deinterleave()
            first.unsafe_store(j, rebind[SIMD[dtype, width]](re))
            second.unsafe_store(j, rebind[SIMD[dtype, width]](im))
            j += width
        while j < n:
            first[unsafe_offset=j] = x[unsafe_offset = 2 * j]
            second[unsafe_offset=j] = x[unsafe_offset = 2 * j + 1]
            j += 1
    else:
        var rows = Array[SIMD[dtype, lanes], lanes](fill=SIMD[dtype, lanes](0))
        while j + lanes // 2 <= n:
            comptime for lane in range(lanes):
                rows[lane] = x.unsafe_load[width=lanes](lane * row + 2 * j)
            transpose(rows)
            comptime for f in range(lanes // 2):
                first.unsafe_store((j + f) * lanes, rows[2 * f])
                second.unsafe_store((j + f) * lanes, rows[2 * f + 1])
            j += lanes // 2
        while j < n:
            for lane in range(lanes):
                var at = lane * row + 2 * j
                first[unsafe_offset = j * lanes + lane] = x[unsafe_offset=at]
                second[unsafe_offset = j * lanes + lane] = x[unsafe_offset = at + 1]
            j += 1


@always_inline
def _store_pairs[
    dtype: DType, //, lanes: Int
](
    planes: Address[dtype],
    size: Int,
    n: Int,
    y: Address[dtype],
    row: Int,
    swapped: Bool,
    scale: Scalar[dtype],
):
    """The reverse of `_load_pairs`, times `scale`."""
    comptime width = simd_width_of[dtype]()
    var first = planes.unsafe_offset(size if swapped else 0)
    var second = planes.unsafe_offset(0 if swapped else size)
    var j = 0
    comptime if lanes == 1:
        while j + width <= n:
            var re = first.unsafe_load[width=width](j) * scale
            var im = second.unsafe_load[width=width](j) * scale
            y.unsafe_store(2 * j, re.interleave(im))
            j += width
        while j < n:
            y[unsafe_offset = 2 * j] = first[unsafe_offset=j] * scale
            y[unsafe_offset = 2 * j + 1] = second[unsafe_offset=j] * scale
            j += 1
    else:
        var rows = Array[SIMD[dtype, lanes], lanes](fill=SIMD[dtype, lanes](0))
        while j + lanes // 2 <= n:
            comptime for f in range(lanes // 2):
                rows[2 * f] = first.unsafe_load[width=lanes]((j + f) * lanes) * scale
                rows[2 * f + 1] = second.unsafe_load[width=lanes]((j + f) * lanes) * scale
            transpose(rows)
            comptime for lane in range(lanes):
                y.unsafe_store(lane * row + 2 * j, rows[lane])
            j += lanes // 2
        while j < n:
            for lane in range(lanes):
                var at = lane * row + 2 * j
                y[unsafe_offset=at] = first[unsafe_offset = j * lanes + lane] * scale
                y[unsafe_offset = at + 1] = second[unsafe_offset = j * lanes + lane] * scale
            j += 1


@always_inline
def _split[
    dtype: DType, //, lanes: Int, joins: Bool
](x: Address[dtype], y: Address[dtype], n: Int, table: Address[dtype]):
    """From the transform of `n` pairs of neighbouring real numbers to the `n + 1`
    numbers of the transform of the `2 n` real ones; `joins` is the way back,
    times 2. Planes `[2, n, lanes]` and `[2, n + 1, lanes]`."""
    comptime V = SIMD[dtype, lanes]
    var from_size = (n + 1 if joins else n) * lanes
    var to_size = (n if joins else n + 1) * lanes
    var roots = n // 2 + 1
    for k in range(roots):
        var c = table[unsafe_offset=k]
        var s = table[unsafe_offset = roots + k]
        var mirror = n - k
        var other = mirror
        comptime if not joins:
            other = mirror % n
        var ar = x.unsafe_load[width=lanes](k * lanes)
        var ai = x.unsafe_load[width=lanes](from_size + k * lanes)
        var br = x.unsafe_load[width=lanes](other * lanes)
        var bi = x.unsafe_load[width=lanes](from_size + other * lanes)
        var er = ar + br
        var ei = ai - bi
        comptime if joins:
            if k == 0:
                # The imaginary parts of the first and the last are not looked at.
                ei = V(0)
                ai = V(0)
                bi = V(0)
            # (a - conj b) times the conjugate root.
            var dr = ar - br
            var di = ai + bi
            var tr = dr * c + di * s
            var ti = di * c - dr * s
            # The planes change places: the inverse follows.
            y.unsafe_store(to_size + k * lanes, er - ti)
            y.unsafe_store(k * lanes, ei + tr)
            if k > 0:
                y.unsafe_store(to_size + mirror * lanes, er + ti)
                y.unsafe_store(mirror * lanes, tr - ei)
        else:
            # (a - conj b) / i times the root.
            var dr = ai + bi
            var di = br - ar
            var tr = dr * c - di * s
            var ti = dr * s + di * c
            var half = Scalar[dtype](0.5)
            y.unsafe_store(k * lanes, (er + tr) * half)
            y.unsafe_store(to_size + k * lanes, (ei + ti) * half)
            y.unsafe_store(mirror * lanes, (er - tr) * half)
            y.unsafe_store(to_size + mirror * lanes, (ti - ei) * half)


comptime C2C = 0
comptime R2C = 1
comptime R2C_FULL = 2
comptime C2R = 3


@no_inline
def _lines[
    dtype: DType, //, kind: Int, lanes: Int
](
    x: Address[dtype],
    row_x: Int,
    y: Address[dtype],
    row_y: Int,
    n: Int,
    tables: Tables[dtype],
    a: Address[dtype],
    b: Address[dtype],
    inverse: Bool,
    scale: Scalar[dtype],
):
    """`lanes` lines. Rows are given by the numbers from one to the next."""
    comptime if kind == C2C:
        _load_pairs[lanes](x, row_x, n, a, n * lanes, inverse)
        var z = tables.transform[lanes](a, b)
        _store_pairs[lanes](z, n * lanes, n, y, row_y, inverse, scale)
    elif kind == C2R:
        var half = n // 2
        if n % 2 == 0:
            _load_pairs[lanes](x, row_x, half + 1, b, (half + 1) * lanes, False)
            _split[lanes, True](b, a, half, tables.start().unsafe_offset(tables.halves))
            var z = tables.transform[lanes](a, b)
            _store_pairs[lanes](z, half * lanes, half, y, row_y, True, scale)
        else:
            var size = n * lanes
            for lane in range(lanes):
                var line = x.unsafe_offset(lane * row_x)
                # Planes in reverse: the inverse.
                a[unsafe_offset = size + lane] = line[unsafe_offset=0]
                a[unsafe_offset=lane] = 0
                for j in range(1, half + 1):
                    var re = line[unsafe_offset = 2 * j]
                    var im = line[unsafe_offset = 2 * j + 1]
                    a[unsafe_offset = size + j * lanes + lane] = re
                    a[unsafe_offset = j * lanes + lane] = im
                    a[unsafe_offset = size + (n - j) * lanes + lane] = re
                    a[unsafe_offset = (n - j) * lanes + lane] = -im
            var z = tables.transform[lanes](a, b)
            for lane in range(lanes):
                for j in range(n):
                    y[unsafe_offset = lane * row_y + j] = (
                        z[unsafe_offset = size + j * lanes + lane] * scale
                    )
    else:
        var half = n // 2
        var z = a
        var plane = (half + 1) * lanes
        if n % 2 == 0:
            _load_pairs[lanes](x, row_x, half, a, half * lanes, False)
            var t = tables.transform[lanes](a, b)
            if t == a:
                z = b
            _split[lanes, False](t, z, half, tables.start().unsafe_offset(tables.halves))
        else:
            plane = n * lanes
            for lane in range(lanes):
                for j in range(n):
                    a[unsafe_offset = j * lanes + lane] = x[unsafe_offset = lane * row_x + j]
                    a[unsafe_offset = plane + j * lanes + lane] = 0
            z = tables.transform[lanes](a, b)
        _store_pairs[lanes](z, plane, half + 1, y, row_y, False, scale)
        comptime if kind == R2C_FULL:
            for lane in range(lanes):
                var line = y.unsafe_offset(lane * row_y)
                for j in range(half + 1, n):
                    line[unsafe_offset = 2 * j] = line[unsafe_offset = 2 * (n - j)]
                    line[unsafe_offset = 2 * j + 1] = -line[unsafe_offset = 2 * (n - j) + 1]


def _on_cpu[
    dtype: DType, //, kind: Int
](
    x: Address[dtype],
    row_x: Int,
    y: Address[dtype],
    row_y: Int,
    lines: Int,
    n: Int,
    inverse: Bool,
    scale: Float64,
):
    """All lines, split over threads."""
    comptime width = simd_width_of[dtype]()
    var packed = kind != C2C and n % 2 == 0
    var count = n // 2 if packed else n
    var tables = Tables[dtype](count, n if packed else 0)
    # A transform of `n + 1` numbers fits as well.
    var room = 2 * (max(tables.length, n) + 1)
    var memory = List[Scalar[dtype]](unsafe_uninit_length=tables.size)
    var tasks = min(parallelism_level(None), lines)
    tasks = max(1, min(tasks, lines * tables.length * 4 // GRAIN))
    var lanes = width if tables.length <= SHORT and lines >= width else 1
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * 2 * room * lanes)
    var spare = scratch.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
    tables.fill(memory.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](), spare)
    var chunk = ceildiv(ceildiv(lines, lanes), tasks) * lanes
    var factor = scale.cast[dtype]()

    def some(
        task: Int,
    ) {
        var x,
        var row_x,
        var y,
        var row_y,
        var lines,
        var n,
        var inverse,
        var factor,
        var tables,
        var spare,
        var room,
        var lanes,
        var chunk,
    }:
        var a = spare.unsafe_offset(task * 2 * room * lanes)
        var b = a.unsafe_offset(room * lanes)
        var line = task * chunk
        var end = min(lines, (task + 1) * chunk)
        while line < end:
            var from_ = x.unsafe_offset(line * row_x)
            var to = y.unsafe_offset(line * row_y)
            if lanes > 1 and line + width <= end:
                _lines[kind, width](
                    from_, row_x, to, row_y, n, tables, a, b, inverse, factor
                )
                line += width
            else:
                _lines[kind, 1](
                    from_, row_x, to, row_y, n, tables, a, b, inverse, factor
                )
                line += 1

    sync_parallelize(some, tasks)
    _ = scratch^
    _ = memory^


def _on_gpu[
    dtype: DType, //, kind: Int, target: StaticString
](
    x: Address[dtype],
    row_x: Int,
    y: Address[dtype],
    row_y: Int,
    lines: Int,
    n: Int,
    inverse: Bool,
    scale: Float64,
    a: Address[dtype],
    b: Address[dtype],
    table: Address[dtype],
    ctx: DeviceContext,
) raises:
    """A launch a pass, a thread a butterfly; pairs `[lines, n]` in `a` and `b`,
    the roots of unity in `table`. Prime factors from 7 on are summed as written."""
    var mirrors = kind == C2R or inverse

    @always_inline
    def roots[width: Int, alignment: Int = 1](idx: Coord[...]) {var table, var n} -> None:
        var k = Int(idx[0].value())
        var (re, im) = _root(SIMD[DType.int64, 1](Int64(k)), n)
        table[unsafe_offset = 2 * k] = re.cast[dtype]()
        table[unsafe_offset = 2 * k + 1] = im.cast[dtype]()

    elementwise[simd_width=1, target=target](roots, Coord(n), ctx)

    @always_inline
    def load[
        width: Int, alignment: Int = 1
    ](idx: Coord[...]) {var x, var row_x, var a, var n, var mirrors} -> None:
        var i = Int(idx[0].value())
        var line = x.unsafe_offset(i // n * row_x)
        var j = i % n
        var re: Scalar[dtype]
        var im = Scalar[dtype](0)
        comptime if kind == C2C:
            re = line[unsafe_offset = 2 * j]
            im = line[unsafe_offset = 2 * j + 1]
        elif kind == C2R:
            var at = min(j, n - j)
            re = line[unsafe_offset = 2 * at]
            # Imaginary parts that must be 0 are not looked at.
            if at > 0 and 2 * at < n:
                im = line[unsafe_offset = 2 * at + 1]
                if j != at:
                    im = -im
        else:
            re = line[unsafe_offset=j]
        a[unsafe_offset = 2 * i] = im if mirrors else re
        a[unsafe_offset = 2 * i + 1] = re if mirrors else im

    elementwise[simd_width=1, target=target](load, Coord(lines * n), ctx)

    var plan = Plan(n, 0)
    var length = n
    var stride = 1
    var from_ = a
    var to = b
    while length > 1:
        var radix = plan.radix(length)
        if radix == 4:
            _launch[4, target](from_, to, table, lines, n, length // 4, stride, ctx)
        elif radix == 2:
            _launch[2, target](from_, to, table, lines, n, length // 2, stride, ctx)
        elif radix == 3:
            _launch[3, target](from_, to, table, lines, n, length // 3, stride, ctx)
        elif radix == 5:
            _launch[5, target](from_, to, table, lines, n, length // 5, stride, ctx)
        else:
            _launch_any[target](from_, to, table, lines, n, radix, length // radix, stride, ctx)
        stride *= radix
        length //= radix
        swap(from_, to)

    var columns = n
    comptime if kind == R2C:
        columns = n // 2 + 1
    var factor = scale.cast[dtype]()

    @always_inline
    def store[
        width: Int, alignment: Int = 1
    ](
        idx: Coord[...]
    ) {
        var from_, var y, var row_y, var n, var columns, var mirrors, var factor
    } -> None:
        var i = Int(idx[0].value())
        var line = i // columns
        var j = i % columns
        var first = from_[unsafe_offset = 2 * (line * n + j)] * factor
        var second = from_[unsafe_offset = 2 * (line * n + j) + 1] * factor
        comptime if kind == C2R:
            y[unsafe_offset = line * row_y + j] = second
        else:
            y[unsafe_offset = line * row_y + 2 * j] = second if mirrors else first
            y[unsafe_offset = line * row_y + 2 * j + 1] = first if mirrors else second

    elementwise[simd_width=1, target=target](store, Coord(lines * columns), ctx)


def _launch[
    dtype: DType, //, radix: Int, target: StaticString
](
    x: Address[dtype],
    y: Address[dtype],
    table: Address[dtype],
    lines: Int,
    n: Int,
    m: Int,
    stride: Int,
    ctx: DeviceContext,
) raises:
    @always_inline
    def one[
        width: Int, alignment: Int = 1
    ](idx: Coord[...]) {var x, var y, var table, var n, var m, var stride} -> None:
        var count = n // radix
        var i = Int(idx[0].value())
        var line = i // count * n
        var q = i % count % stride
        var p = i % count // stride
        var re = Lanes[dtype, 1, radix](fill=0)
        var im = Lanes[dtype, 1, radix](fill=0)
        comptime for k in range(radix):
            var at = line + q + stride * (p + m * k)
            re[k] = x[unsafe_offset = 2 * at]
            im[k] = x[unsafe_offset = 2 * at + 1]
        _butterfly[dtype, 1, radix](re, im)
        comptime for k in range(radix):
            var at = line + q + stride * (radix * p + k)
            var c = table[unsafe_offset = 2 * (p * k * stride)]
            var s = table[unsafe_offset = 2 * (p * k * stride) + 1]
            y[unsafe_offset = 2 * at] = (re[k] * c - im[k] * s)[0]
            y[unsafe_offset = 2 * at + 1] = (re[k] * s + im[k] * c)[0]

    elementwise[simd_width=1, target=target](one, Coord(lines * (n // radix)), ctx)


def _launch_any[
    dtype: DType, //, target: StaticString
](
    x: Address[dtype],
    y: Address[dtype],
    table: Address[dtype],
    lines: Int,
    n: Int,
    radix: Int,
    m: Int,
    stride: Int,
    ctx: DeviceContext,
) raises:
    @always_inline
    def one[
        width: Int, alignment: Int = 1
    ](idx: Coord[...]) {var x, var y, var table, var n, var radix, var m, var stride} -> None:
        var i = Int(idx[0].value())
        var line = i // n * n
        var k = i % n // stride % radix
        var q = i % stride
        var p = i % n // stride // radix
        var re = Scalar[dtype](0)
        var im = Scalar[dtype](0)
        for j in range(radix):
            var at = line + q + stride * (p + m * j)
            var turn = (j * k) % radix * (n // radix)
            var c = table[unsafe_offset = 2 * turn]
            var s = table[unsafe_offset = 2 * turn + 1]
            var a = x[unsafe_offset = 2 * at]
            var b = x[unsafe_offset = 2 * at + 1]
            re += a * c - b * s
            im += a * s + b * c
        var c = table[unsafe_offset = 2 * (p * k * stride)]
        var s = table[unsafe_offset = 2 * (p * k * stride) + 1]
        y[unsafe_offset = 2 * i] = re * c - im * s
        y[unsafe_offset = 2 * i + 1] = re * s + im * c

    elementwise[simd_width=1, target=target](one, Coord(lines * n), ctx)


@register("tmb_fft")
struct Transform:
    """Transforms of the lines of `x`: `kind` "c2c" (pairs to pairs), "r2c" (real
    numbers to the first half of the pairs), "r2c_full" (to all of them) or "c2r"
    (the first half of the pairs to real numbers); lines of pairs are `[n * 2]`.
    `normalization` 0 leaves the sum, 1 divides by `sqrt(n)`, 2 by `n`. Scratch for
    GPUs: twice `[lines * n * 2]` and `[n * 2]`; none on CPU."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, inverse: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        first: OutputTensor[dtype=dtype, rank=1, ...],
        second: OutputTensor[dtype=dtype, rank=1, ...],
        roots: OutputTensor[dtype=dtype, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        normalization: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var lines = x.dim_size[0]()
        var row_x = x.dim_size[1]()
        var row_y = output.dim_size[1]()
        if output.dim_size[0]() != lines:
            raise Error("the transform has other lines than its argument")
        var n: Int
        comptime if kind == "c2c":
            n = row_x // 2
            if row_y != row_x or row_x % 2 != 0:
                raise Error("lines of pairs are transformed to such of the same length")
        elif kind == "r2c":
            n = row_x
            if row_y != 2 * (n // 2 + 1):
                raise Error("half of a transform has n // 2 + 1 pairs")
        elif kind == "r2c_full":
            n = row_x
            if row_y != 2 * n:
                raise Error("a transform has as many pairs as its argument numbers")
        else:
            comptime assert kind == "c2r", "unknown kind"
            n = row_y
            if row_x < 2 * (n // 2 + 1):
                raise Error("the transform needs n // 2 + 1 pairs of each line")
        if lines == 0 or n == 0:
            return
        var scale = 1.0
        if normalization == 1:
            scale = 1 / sqrt(Float64(n))
        elif normalization == 2:
            scale = 1 / Float64(n)
        comptime which = C2C if kind == "c2c" else (
            R2C if kind == "r2c" else (R2C_FULL if kind == "r2c_full" else C2R)
        )
        var from_ = x.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var to = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        comptime if target == "cpu":
            _on_cpu[which](from_, row_x, to, row_y, lines, n, inverse, scale)
        else:
            _on_gpu[which, target](
                from_,
                row_x,
                to,
                row_y,
                lines,
                n,
                inverse,
                scale,
                first.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](),
                second.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](),
                roots.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](),
                ctx,
            )
