"""Stockham's passes over lines, which need no reordering (P. N. Swarztrauber, "FFT algorithms for
vector computers", 1984).

A line is two planes (real parts, imaginary parts) and each transform is the forward one: swapping the
planes on the way in and out makes the inverse."""

from std.sys import simd_width_of

from ..core.memory import Address
from .butterflies import Lanes, butterfly
from .roots import Plan


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
    butterfly[dtype, width, radix](re, im)


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
    """`radix_pass` for any odd prime radix, by the sum as it is written."""
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
def transform_planes[
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
            radix_pass[4](x, xi, y, yi, twiddles, m, stride)
        elif radix == 2:
            radix_pass[2](x, xi, y, yi, twiddles, m, stride)
        elif radix == 3:
            radix_pass[3](x, xi, y, yi, twiddles, m, stride)
        elif radix == 5:
            radix_pass[5](x, xi, y, yi, twiddles, m, stride)
        else:
            any_radix_pass(x, xi, y, yi, twiddles, radix, m, stride)
        twiddles = twiddles.unsafe_offset(2 * (radix - 1) * m + 2 * radix)
        stride *= radix
        length = m
        swap(x, y)
    return x
