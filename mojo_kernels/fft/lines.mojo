"""Lines of pairs or of real numbers, to the planes that passes work on and back.

Complex numbers are pairs, real part first."""

from std.sys import simd_width_of
from std.utils.index import IndexList

from ..core.memory import Address
from .alone import transform_pairs
from .pairs import load_pairs, store_pairs
from .tables import Tables


@fieldwise_init
struct _Recombined[dtype: DType, width: Int](TrivialRegisterPassable):
    """Numbers of a transform and those that mirror them, both parts."""

    var re: SIMD[Self.dtype, Self.width]
    var im: SIMD[Self.dtype, Self.width]
    var mirror_re: SIMD[Self.dtype, Self.width]
    var mirror_im: SIMD[Self.dtype, Self.width]


@always_inline
def _recombined[
    dtype: DType, //, joins: Bool, width: Int
](
    a: _Recombined[dtype, width],
    c: SIMD[dtype, width],
    s: SIMD[dtype, width],
    scale: Scalar[dtype] = 1,
) -> _Recombined[dtype, width]:
    """One step of `_split`, with roots `c + i s` that are scaled as the result."""
    var er = (a.re + a.mirror_re) * scale
    var ei = (a.im - a.mirror_im) * scale
    comptime if joins:
        # (a - conj b) times the conjugate root.
        var dr = a.re - a.mirror_re
        var di = a.im + a.mirror_im
        var tr = dr * c + di * s
        var ti = di * c - dr * s
        return {er - ti, ei + tr, er + ti, tr - ei}
    else:
        # (a - conj b) / i times the root.
        var dr = a.im + a.mirror_im
        var di = a.mirror_re - a.re
        var tr = dr * c - di * s
        var ti = dr * s + di * c
        var half = Scalar[dtype](0.5)
        return {(er + tr) * half, (ei + ti) * half, (er - tr) * half, (ti - ei) * half}


def _backwards[width: Int]() -> IndexList[width]:
    var lanes = IndexList[width](0)
    for i in range(width):
        lanes[i] = width - 1 - i
    return lanes


@always_inline
def _neighbours[
    dtype: DType, //, joins: Bool
](
    x: Address[dtype],
    xi: Address[dtype],
    n: Int,
    k: Int,
    table: Address[dtype],
    scale: Scalar[dtype],
) -> _Recombined[dtype, simd_width_of[dtype]()]:
    """`_recombined` of a vector of numbers from `k` on and of those that mirror them, which are in
    the order of the memory here."""
    comptime width = simd_width_of[dtype]()
    comptime backwards = _backwards[width]()
    var at = n - k - width + 1
    var all = _recombined[joins](
        _Recombined[dtype, width](
            x.unsafe_load[width=width](k),
            xi.unsafe_load[width=width](k),
            x.unsafe_load[width=width](at).shuffle[mask=backwards](),
            xi.unsafe_load[width=width](at).shuffle[mask=backwards](),
        ),
        table.unsafe_load[width=width](k) * scale,
        table.unsafe_load[width=width](n // 2 + 1 + k) * scale,
        scale,
    )
    all.mirror_re = all.mirror_re.shuffle[mask=backwards]()
    all.mirror_im = all.mirror_im.shuffle[mask=backwards]()
    return all


@always_inline
def _split[
    dtype: DType, //, lanes: Int, joins: Bool
](x: Address[dtype], y: Address[dtype], n: Int, table: Address[dtype]):
    """From the transform of `n` pairs of neighbouring real numbers to the `n + 1`
    numbers of the transform of the `2 n` real ones; `joins` is the way back,
    times 2. Planes `[2, n, lanes]` and `[2, n + 1, lanes]`."""
    comptime V = SIMD[dtype, lanes]
    comptime width = simd_width_of[dtype]()
    var from_size = (n + 1 if joins else n) * lanes
    var to_size = (n if joins else n + 1) * lanes
    # The planes of the way back change places: the inverse follows.
    var yr = y.unsafe_offset(to_size if joins else 0)
    var yi = y.unsafe_offset(0 if joins else to_size)
    var xi = x.unsafe_offset(from_size)
    var roots = n // 2 + 1
    var k = 0
    while k < roots:
        comptime if lanes == 1:
            if k > 0 and k + width <= roots:
                var at = n - k - width + 1
                var all = _neighbours[joins](x, xi, n, k, table, 1)
                yr.unsafe_store(k, all.re)
                yi.unsafe_store(k, all.im)
                yr.unsafe_store(at, all.mirror_re)
                yi.unsafe_store(at, all.mirror_im)
                k += width
                continue
        var mirror = (n - k) * lanes
        var other = mirror
        comptime if not joins:
            other = mirror % (n * lanes)
        var both = _Recombined[dtype, lanes](
            x.unsafe_load[width=lanes](k * lanes),
            xi.unsafe_load[width=lanes](k * lanes),
            x.unsafe_load[width=lanes](other),
            xi.unsafe_load[width=lanes](other),
        )
        comptime if joins:
            if k == 0:
                # The imaginary parts of the first and the last are not looked at.
                both.im = V(0)
                both.mirror_im = V(0)
        var one = _recombined[joins](
            both, V(table[unsafe_offset=k]), V(table[unsafe_offset = roots + k])
        )
        yr.unsafe_store(k * lanes, one.re)
        yi.unsafe_store(k * lanes, one.im)
        if not joins or k > 0:
            yr.unsafe_store(mirror, one.mirror_re)
            yi.unsafe_store(mirror, one.mirror_im)
        k += 1


@always_inline
def _split_to_pairs[
    dtype: DType, //
](
    x: Address[dtype], y: Address[dtype], n: Int, table: Address[dtype], scale: Scalar[dtype]
):
    """`_split` of one line, to pairs, times `scale`."""
    comptime width = simd_width_of[dtype]()
    var xi = x.unsafe_offset(n)
    var roots = n // 2 + 1
    var k = 0
    while k < roots:
        if k > 0 and k + width <= roots:
            var all = _neighbours[False](x, xi, n, k, table, scale)
            y.unsafe_store(2 * k, all.re.interleave(all.im))
            y.unsafe_store(2 * (n - k - width + 1), all.mirror_re.interleave(all.mirror_im))
            k += width
            continue
        var mirror = n - k
        var one = _recombined[False](
            _Recombined[dtype, 1](
                x[unsafe_offset=k],
                xi[unsafe_offset=k],
                x[unsafe_offset = mirror % n],
                xi[unsafe_offset = mirror % n],
            ),
            table[unsafe_offset=k] * scale,
            table[unsafe_offset = roots + k] * scale,
            scale,
        )
        y[unsafe_offset = 2 * k] = one.re[0]
        y[unsafe_offset = 2 * k + 1] = one.im[0]
        y[unsafe_offset = 2 * mirror] = one.mirror_re[0]
        y[unsafe_offset = 2 * mirror + 1] = one.mirror_im[0]
        k += 1


comptime C2C = 0
comptime R2C = 1
comptime R2C_FULL = 2
comptime C2R = 3
comptime C2C_REAL = 4


@always_inline
def _fold[
    dtype: DType, //, lanes: Int
](x: Address[dtype], y: Address[dtype], n: Int):
    """The half of a transform of which the inverse has the same real parts and no others: from
    planes `[2, n, lanes]` to `[2, n // 2 + 1, lanes]`."""
    var half = Scalar[dtype](0.5)
    var from_size = n * lanes
    var to_size = (n // 2 + 1) * lanes
    for k in range(n // 2 + 1):
        var at = k * lanes
        var mirror = (n - k) % n * lanes
        var re = x.unsafe_load[width=lanes](at) + x.unsafe_load[width=lanes](mirror)
        var im = x.unsafe_load[width=lanes](from_size + at)
        im -= x.unsafe_load[width=lanes](from_size + mirror)
        y.unsafe_store(at, re * half)
        y.unsafe_store(to_size + at, im * half)


@no_inline
def transform_lines[
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
    comptime if lanes == 1 and (kind == C2C or kind == R2C or kind == R2C_FULL):
        if tables.plan.alone and not tables.convolves() and (kind == C2C or n % 2 == 0):
            comptime if kind == C2C:
                _ = transform_pairs[True](tables.plan, x, y, a, b, tables.start(), inverse, scale)
            else:
                var z = transform_pairs[False](
                    tables.plan, x, y, a, b, tables.start(), False, scale
                )
                var roots = tables.start().unsafe_offset(tables.halves)
                _split_to_pairs(z, y, n // 2, roots, scale)
                comptime if kind == R2C_FULL:
                    mirror(y, y, n)
            return
    comptime if kind == C2C:
        load_pairs[lanes](x, row_x, n, a, n * lanes, inverse)
        var z = tables.transform[lanes](a, b)
        store_pairs[lanes](z, n * lanes, n, y, row_y, inverse, scale)
    elif kind == C2R or kind == C2C_REAL:
        var half = n // 2
        if n % 2 == 0:
            comptime if kind == C2C_REAL:
                load_pairs[lanes](x, row_x, n, a, n * lanes, False)
                _fold[lanes](a, b, n)
            else:
                load_pairs[lanes](x, row_x, half + 1, b, (half + 1) * lanes, False)
            _split[lanes, True](b, a, half, tables.start().unsafe_offset(tables.halves))
            var z = tables.transform[lanes](a, b)
            store_pairs[lanes](z, half * lanes, half, y, row_y, True, scale)
        else:
            var size = n * lanes
            comptime if kind == C2C_REAL:
                load_pairs[lanes](x, row_x, n, a, size, True)
            else:
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
            load_pairs[lanes](x, row_x, half, a, half * lanes, False)
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
        store_pairs[lanes](z, plane, half + 1, y, row_y, False, scale)
        comptime if kind == R2C_FULL:
            for lane in range(lanes):
                var line = y.unsafe_offset(lane * row_y)
                mirror(line, line, n)


def _pairs_backwards[width: Int]() -> IndexList[width]:
    var lanes = IndexList[width](0)
    for i in range(width):
        lanes[i] = width - 2 - i + 2 * (i % 2)
    return lanes


@no_inline
def mirror[dtype: DType, //](line: Address[dtype], other: Address[dtype], n: Int):
    """Writes the second half of a line of the transform of real numbers, `n` pairs long, which
    mirrors the first half of the other."""
    comptime width = simd_width_of[dtype]()
    comptime backwards = _pairs_backwards[width]()
    var signs = SIMD[dtype, width](1)
    comptime for i in range(1, width, 2):
        signs[i] = -1
    var j = n // 2 + 1
    while j + width // 2 <= n:
        var v = other.unsafe_load[width=width](2 * (n - j - width // 2 + 1))
        line.unsafe_store(2 * j, v.shuffle[mask=backwards]() * signs)
        j += width // 2
    while j < n:
        line[unsafe_offset = 2 * j] = other[unsafe_offset = 2 * (n - j)]
        line[unsafe_offset = 2 * j + 1] = -other[unsafe_offset = 2 * (n - j) + 1]
        j += 1


@no_inline
def transform_columns[
    dtype: DType, //, lanes: Int
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
    """`lanes` lines of `n` pairs that lie beside each other; rows are given by the numbers from one
    to the next."""
    var size = n * lanes
    var first = a.unsafe_offset(size if inverse else 0)
    var second = a.unsafe_offset(0 if inverse else size)
    for j in range(n):
        var (re, im) = x.unsafe_load[width = 2 * lanes](j * row_x).deinterleave()
        first.unsafe_store(j * lanes, rebind[SIMD[dtype, lanes]](re))
        second.unsafe_store(j * lanes, rebind[SIMD[dtype, lanes]](im))
    var z = tables.transform[lanes](a, b)
    first = z.unsafe_offset(size if inverse else 0)
    second = z.unsafe_offset(0 if inverse else size)
    for j in range(n):
        var re = first.unsafe_load[width=lanes](j * lanes) * scale
        var im = second.unsafe_load[width=lanes](j * lanes) * scale
        y.unsafe_store(j * row_y, re.interleave(im))
