"""Transforms on GPUs: a launch a pass, a thread a butterfly."""

from layout import Coord
from max.algorithm import elementwise
from max.gpu.host import DeviceContext

from ..core.memory import Address
from .butterflies import Lanes, RADICES, butterfly
from .lines import C2C, C2R, R2C
from .roots import Plan, root


def on_gpu[
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
    the roots of unity in `table`. Prime factors from 11 on are summed as written."""
    var mirrors = kind == C2R or inverse

    @always_inline
    def roots[width: Int, alignment: Int = 1](idx: Coord[...]) {var table, var n} -> None:
        var k = Int(idx[0].value())
        var (re, im) = root(SIMD[DType.int64, 1](Int64(k)), n)
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

    var plan = Plan(n)
    var length = n
    var stride = 1
    var from_ = a
    var to = b
    while length > 1:
        var radix = plan.radix(length)
        var known = False
        comptime for i in range(RADICES.size):
            comptime each = RADICES[i]
            if radix == each:
                known = True
                _launch[each, target](from_, to, table, lines, n, length // each, stride, ctx)
        if not known:
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
        butterfly[dtype, 1, radix](re, im)
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
