"""Stockham's passes over lines, which need no reordering (P. N. Swarztrauber, "FFT algorithms for
vector computers", 1984).

A line is two planes (real parts, imaginary parts) and each transform is the forward one: swapping the
planes on the way in and out makes the inverse."""

from std.memory import unsafe_stack_allocation
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..gemm.panels import transpose
from .butterflies import Lanes, RADICES, butterfly
from .roots import Plan


@always_inline
def loaded[
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
    butterfly[dtype, width, radix](re, im)


@always_inline
def _columns[
    dtype: DType, //, radix: Int, width: Int, turns: Bool
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    far: Int,
    stride: Int,
    start: Int,
    wr: Lanes[dtype, 1, radix],
    wi: Lanes[dtype, 1, radix],
) -> Int:
    """Neighbours with the same twiddles, `width` at a time; without `turns` these are 1. Returns
    where it has stopped."""
    var re = Lanes[dtype, width, radix](fill=0)
    var im = Lanes[dtype, width, radix](fill=0)
    var q = start
    while q + width <= stride:
        loaded[radix, width](xr.unsafe_offset(q), xi.unsafe_offset(q), far, re, im)
        comptime for k in range(radix):
            var r = re[k]
            var i = im[k]
            comptime if turns and k > 0:
                var a = SIMD[dtype, width](wr[k][0])
                var b = SIMD[dtype, width](wi[k][0])
                r = re[k] * a - im[k] * b
                i = re[k] * b + im[k] * a
            yr.unsafe_store(q + k * stride, r)
            yi.unsafe_store(q + k * stride, i)
        q += width
    return q


@no_inline
def radix_pass[
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
        var q = 0
        if p == 0:
            q = _columns[radix, width, False](ar, ai, br, bi, far, stride, q, wr, wi)
        else:
            q = _columns[radix, width, True](ar, ai, br, bi, far, stride, q, wr, wi)
        comptime for narrow in range(1, 4):
            comptime if width >> narrow > 1:
                q = _columns[radix, width >> narrow, True](
                    ar, ai, br, bi, far, stride, q, wr, wi
                )
        if q < stride:
            _ = _columns[radix, 1, True](ar, ai, br, bi, far, stride, q, wr, wi)


@no_inline
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
    var p = _first_columns[radix, width](xr, xi, yr, yi, table, m, 0)
    comptime if width > 4:
        p = _first_columns[radix, 4](xr, xi, yr, yi, table, m, p)
    if p < m:
        _ = _first_columns[radix, 1](xr, xi, yr, yi, table, m, p)


@always_inline
def _first_columns[
    dtype: DType, //, radix: Int, width: Int
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    table: Address[dtype],
    m: Int,
    start: Int,
) -> Int:
    """`width` butterflies at a time; returns where it has stopped."""
    var re = Lanes[dtype, width, radix](fill=0)
    var im = Lanes[dtype, width, radix](fill=0)
    var p = start
    while p + width <= m:
        loaded[radix, width](xr.unsafe_offset(p), xi.unsafe_offset(p), m, re, im)
        turned_and_woven(re, im, table, m, p, yr, yi)
        p += width
    return p


@always_inline
def turned_and_woven[
    dtype: DType, width: Int, radix: Int, //
](
    mut re: Lanes[dtype, width, radix],
    mut im: Lanes[dtype, width, radix],
    table: Address[dtype],
    m: Int,
    p: Int,
    yr: Address[dtype],
    yi: Address[dtype],
):
    """Stores a vector of butterflies of the pass with stride 1, times their twiddles: from the
    `p`th of `m` on."""
    var plane = (radix - 1) * m
    comptime for k in range(1, radix):
        var a = table.unsafe_load[width=width]((k - 1) * m + p)
        var b = table.unsafe_load[width=width](plane + (k - 1) * m + p)
        var c = re[k]
        re[k] = c * a - im[k] * b
        im[k] = c * b + im[k] * a
    _woven(re, yr.unsafe_offset(radix * p))
    _woven(im, yi.unsafe_offset(radix * p))


@always_inline
def _woven[
    dtype: DType, width: Int, radix: Int, //
](v: Lanes[dtype, width, radix], to: Address[dtype]):
    """Stores the first lane of each, then the second of each, and so on."""
    comptime if radix == 16 and width > 1:
        comptime for part in range(0, radix, width):
            var rows = Array[SIMD[dtype, width], width](fill=SIMD[dtype, width](0))
            comptime for k in range(width):
                rows[k] = v[part + k]
            transpose(rows)
            comptime for lane in range(width):
                to.unsafe_store(lane * radix + part, rows[lane])
    elif radix == 8 and width > 1:
        var even = v[0].interleave(v[4]).interleave(v[2].interleave(v[6]))
        var odd = v[1].interleave(v[5]).interleave(v[3].interleave(v[7]))
        to.unsafe_store(0, even.interleave(odd))
    elif radix == 4 and width > 1:
        to.unsafe_store(0, v[0].interleave(v[2]).interleave(v[1].interleave(v[3])))
    elif radix == 2 and width > 1:
        to.unsafe_store(0, v[0].interleave(v[1]))
    else:
        comptime for lane in range(width):
            comptime for k in range(radix):
                to[unsafe_offset = lane * radix + k] = v[k][lane]


# The largest radix of `any_radix_pass`.
comptime LARGEST_RADIX = 127
# Numbers of a butterfly of `any_radix_pass` that are summed up at a time.
comptime _TOGETHER = 4


@no_inline
def any_radix_pass[
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
    """`radix_pass` for any odd prime radix up to `LARGEST_RADIX`, by the sum as it is written."""
    comptime width = simd_width_of[dtype]()
    for p in range(m):
        var ar = xr.unsafe_offset(stride * p)
        var ai = xi.unsafe_offset(stride * p)
        var br = yr.unsafe_offset(stride * p * radix)
        var bi = yi.unsafe_offset(stride * p * radix)
        var q = 0
        comptime for part in range(5):
            comptime some = max(1, width >> part)
            while q + some <= stride:
                _sums[some](
                    ar.unsafe_offset(q),
                    ai.unsafe_offset(q),
                    br.unsafe_offset(q),
                    bi.unsafe_offset(q),
                    table,
                    radix,
                    m,
                    p,
                    stride,
                )
                q += some


@no_inline
def _sums[
    dtype: DType, //, width: Int
](
    xr: Address[dtype],
    xi: Address[dtype],
    yr: Address[dtype],
    yi: Address[dtype],
    table: Address[dtype],
    radix: Int,
    m: Int,
    p: Int,
    stride: Int,
):
    """A butterfly. What mirrors each other is added and subtracted once: the sums only meet the
    cosines, the differences only the sines, and two results that mirror each other share both."""
    comptime V = SIMD[dtype, width]
    var far = stride * m
    var half = radix // 2
    comptime room = LARGEST_RADIX * width
    var added = untracked(unsafe_stack_allocation[room, Scalar[dtype], alignment=64]())
    var subtracted = untracked(unsafe_stack_allocation[room, Scalar[dtype], alignment=64]())
    var first_re = xr.unsafe_load[width=width](0)
    var first_im = xi.unsafe_load[width=width](0)
    var total_re = first_re
    var total_im = first_im
    for j in range(half):
        var a = xr.unsafe_load[width=width]((j + 1) * far)
        var b = xr.unsafe_load[width=width]((radix - 1 - j) * far)
        added.unsafe_store(2 * j * width, a + b)
        subtracted.unsafe_store(2 * j * width, a - b)
        total_re += a + b
        a = xi.unsafe_load[width=width]((j + 1) * far)
        b = xi.unsafe_load[width=width]((radix - 1 - j) * far)
        added.unsafe_store((2 * j + 1) * width, a + b)
        subtracted.unsafe_store((2 * j + 1) * width, a - b)
        total_im += a + b
    yr.unsafe_store(0, total_re)
    yi.unsafe_store(0, total_im)
    var plane = (radix - 1) * m
    var roots = table.unsafe_offset(2 * plane)
    for first in range(1, half + 1, _TOGETHER):
        var turn = Array[Int, _TOGETHER](fill=0)
        var ar = Array[V, _TOGETHER](fill=first_re)
        var ai = Array[V, _TOGETHER](fill=first_im)
        var br = Array[V, _TOGETHER](fill=V(0))
        var bi = Array[V, _TOGETHER](fill=V(0))
        for j in range(half):
            var sr = added.unsafe_load[width=width](2 * j * width)
            var si = added.unsafe_load[width=width]((2 * j + 1) * width)
            var dr = subtracted.unsafe_load[width=width](2 * j * width)
            var di = subtracted.unsafe_load[width=width]((2 * j + 1) * width)
            comptime for t in range(_TOGETHER):
                turn[t] += first + t
                if turn[t] >= radix:
                    turn[t] -= radix
                var c = roots[unsafe_offset = turn[t]]
                var s = roots[unsafe_offset = radix + turn[t]]
                ar[t] += sr * c
                ai[t] += si * c
                br[t] += di * s
                bi[t] += dr * s
        comptime for t in range(_TOGETHER):
            var k = first + t
            if k <= half:
                _turned(yr, yi, ar[t] - br[t], ai[t] + bi[t], table, radix, k, m, p, stride)
                k = radix - k
                _turned(yr, yi, ar[t] + br[t], ai[t] - bi[t], table, radix, k, m, p, stride)


@always_inline
def _turned[
    dtype: DType, width: Int, //
](
    yr: Address[dtype],
    yi: Address[dtype],
    re: SIMD[dtype, width],
    im: SIMD[dtype, width],
    table: Address[dtype],
    radix: Int,
    k: Int,
    m: Int,
    p: Int,
    stride: Int,
):
    """Stores the `k`th number of a butterfly, times its twiddle."""
    var wr = table[unsafe_offset = (k - 1) * m + p]
    var wi = table[unsafe_offset = (radix - 1) * m + (k - 1) * m + p]
    yr.unsafe_store(k * stride, re * wr - im * wi)
    yi.unsafe_store(k * stride, re * wi + im * wr)


@always_inline
def transform_planes[
    dtype: DType, //
](
    plan: Plan,
    lanes: Int,
    a: Address[dtype],
    b: Address[dtype],
    table: Address[dtype],
) -> Address[dtype]:
    """The transform of `lanes` lines, element by element side by side, in planes
    `[2, n, lanes]`; returns `a` or `b`, whichever holds it."""
    var length = plan.n
    var stride = lanes
    var x = a
    var y = b
    var twiddles = table
    while length > 1:
        var radix = plan.radix(length)
        any_pass(radix, x, y, plan.n * lanes, twiddles, length // radix, stride)
        twiddles = twiddles.unsafe_offset(twiddles_of(radix, length))
        stride *= radix
        length //= radix
        swap(x, y)
    return x


@always_inline
def twiddles_of(radix: Int, length: Int) -> Int:
    """Numbers in the table of a pass over what is left of a length."""
    return 2 * (radix - 1) * (length // radix) + 2 * radix


@always_inline
def any_pass[
    dtype: DType, //
](
    radix: Int,
    x: Address[dtype],
    y: Address[dtype],
    size: Int,
    twiddles: Address[dtype],
    m: Int,
    stride: Int,
):
    """A pass from planes of `size` numbers to such."""
    var xi = x.unsafe_offset(size)
    var yi = y.unsafe_offset(size)
    if radix == 16:
        # Only of a line by itself, and as its first.
        _first_pass[16](x, xi, y, yi, twiddles, m)
        return
    comptime for i in range(RADICES.size):
        if radix == RADICES[i]:
            radix_pass[RADICES[i]](x, xi, y, yi, twiddles, m, stride)
            return
    any_radix_pass(x, xi, y, yi, twiddles, radix, m, stride)
