"""Convolutions of bfloat16 by dot products: two input channels are one whose numbers are pairs, kept
in the 32 bits of a float32 number. Images and weights are copied so; all else is a convolution of
half as many channels."""

from std.math import ceildiv
from std.memory import bitcast, unsafe_memcpy
from std.sys.intrinsics import masked_load

from ..core.memory import Address
from ..core.vectors import below
from ..gemm.bfloat16 import SIDE, dots
from .planes import Layout, Window

comptime Half = Address[DType.bfloat16]
comptime Single = Address[DType.float32]
comptime _Pairs = SIMD[DType.float32, SIDE]
comptime _Halves = SIMD[DType.uint16, SIDE]


@always_inline
def accumulated[
    dtype: DType, width: Int, //, pairs: Bool
](left: SIMD[dtype, width], right: SIMD[dtype, width], sum: SIMD[dtype, width]) -> SIMD[
    dtype, width
]:
    """`sum` and the products of numbers, or of both numbers of `pairs`."""
    comptime if not pairs:
        return left.fma(right, sum)
    elif dtype == DType.float32 and width == SIDE:
        return rebind[SIMD[dtype, width]](
            dots(
                rebind[_Pairs](sum),
                bitcast[DType.bfloat16, 2 * SIDE](rebind[_Pairs](left)),
                bitcast[DType.bfloat16, 2 * SIDE](rebind[_Pairs](right)),
            )
        )
    else:
        comptime assert False, "pairs lie in vectors of 16"
        return sum


@always_inline
def times[
    dtype: DType, //, pairs: Bool
](left: Scalar[dtype], right: Scalar[dtype]) -> Scalar[dtype]:
    """The product of two numbers, or the sum of those of two pairs."""
    comptime if not pairs:
        return left * right
    else:
        var l = bitcast[DType.bfloat16, 2](left.cast[DType.float32]()).cast[DType.float32]()
        var r = bitcast[DType.bfloat16, 2](right.cast[DType.float32]()).cast[DType.float32]()
        return (l * r).reduce_add().cast[dtype]()


@always_inline
def _some[stride: Int](source: Address[DType.uint16], count: Int) -> _Halves:
    """Up to 16 numbers that lie `stride` apart, 1 or 2, zeros behind them; reads no others."""
    comptime if stride == 1:
        return masked_load[SIDE](source, below[SIDE](count), _Halves(0))
    else:
        var low = masked_load[SIDE](source, below[SIDE](2 * count - 1), _Halves(0))
        var rest = below[SIDE](2 * count - 1 - SIDE)
        var high = masked_load[SIDE](source.unsafe_offset(SIDE), rest, _Halves(0))
        return rebind[_Halves](low.join(high).deinterleave()[0])


@always_inline
def _store(to: Single, first: _Halves, second: _Halves):
    to.unsafe_store(0, bitcast[DType.float32, SIDE](first.interleave(second)))


@always_inline
def _pairs[
    stride: Int
](to: Single, first: Address[DType.uint16], second: Address[DType.uint16], both: Bool, count: Int):
    """Pairs of numbers that lie `stride` apart. Writes up to a vector past the last."""
    for i in range(0, count, SIDE):
        var some = count - i
        var a = _some[stride](first.unsafe_offset(i * stride), some)
        var b = _Halves(0)
        if both:
            b = _some[stride](second.unsafe_offset(i * stride), some)
        _store(to.unsafe_offset(i), a, b)


@always_inline
def _line(
    to: Single,
    first: Address[DType.uint16],
    second: Address[DType.uint16],
    both: Bool,
    left: Int,
    right: Int,
    extent: Int,
):
    """Pairs `left` to `right` of a line of `extent`, zeros around them; pair 0 would be of the first
    numbers. Writes up to a vector past the end, reads nothing outside."""
    for i in range(0, extent, SIDE):
        var inside = below[SIDE](right - i) & ~below[SIDE](left - i)
        var a = masked_load[SIDE](first.unsafe_offset(i), inside, _Halves(0))
        var other = inside & SIMD[DType.bool, SIDE](fill=both)
        var b = masked_load[SIDE](second.unsafe_offset(i), other, _Halves(0))
        _store(to.unsafe_offset(i), a, b)


def _stepped_line(
    to: Single,
    first: Address[DType.uint16],
    second: Address[DType.uint16],
    both: Bool,
    stride: Int,
    left: Int,
    right: Int,
    extent: Int,
):
    """The same of numbers that lie `stride` apart."""
    for i in range(0, left, SIDE):
        to.unsafe_store(i, _Pairs(0))
    var from_ = first.unsafe_offset(left * stride)
    var other = second.unsafe_offset(left * stride)
    var place = to.unsafe_offset(left)
    var count = right - left
    if stride == 2:
        _pairs[2](place, from_, other, both, count)
    else:
        for i in range(count):
            var a = from_[unsafe_offset = i * stride]
            var b = UInt16(0)
            if both:
                b = other[unsafe_offset = i * stride]
            var pair = SIMD[DType.uint16, 2](a, b)
            place[unsafe_offset=i] = bitcast[DType.float32, 1](pair)
    for i in range(right, extent, SIDE):
        to.unsafe_store(i, _Pairs(0))


def pair_planes(
    to: Single,
    size: Int,
    image: Half,
    second: Half,
    both: Bool,
    high: Window,
    layout: Layout,
    first: Int,
    rows: Int,
):
    """`phase_planes` of the pairs of two images, the other one zeros unless `both`."""
    var extent = layout.extent()
    var wide = layout.wide
    var one = image.unsafe_bitcast[UInt16]()
    var two = second.unsafe_bitcast[UInt16]()
    for phase_y in range(high.stride):
        if not high.uses(phase_y):
            continue
        for at in range(layout.planes()):
            if not layout.uses(at):
                continue
            var ends = layout.inside(at)
            var before = -layout.first(at)
            var plane = to.unsafe_offset((phase_y * layout.planes() + at) * size)
            if high.stride * wide.stride == 1 and ends[0] == 0 and ends[1] == wide.input:
                if extent == wide.input and high.padding == 0 and first + rows <= high.input:
                    # The rows follow each other, there as here.
                    var start = first * wide.input
                    var count = rows * extent
                    _line(
                        plane, one.unsafe_offset(start), two.unsafe_offset(start), both, 0, count, count
                    )
                    continue
            for row in range(rows):
                var line = plane.unsafe_offset(row * extent)
                var y = (first + row) * high.stride + phase_y - high.padding
                if y < 0 or y >= high.input:
                    _line(line, one, two, False, 0, 0, extent)
                    continue
                var start = y * wide.input - before
                var from_ = one.unsafe_offset(start)
                var other = two.unsafe_offset(start)
                if wide.stride == 1:
                    _line(line, from_, other, both, ends[0], ends[1], extent)
                else:
                    _stepped_line(
                        line, from_, other, both, wide.stride, ends[0], ends[1], extent
                    )


def pair_rows(to: Single, source: Half, row: Int, rows: Int, channels: Int, taps: Int):
    """Copies weights `[rows, channels, taps]`, `row` the distance of rows, as pairs
    `[rows, ceildiv(channels, 2), taps]`. Writes up to a vector past the end."""
    var pairs = ceildiv(channels, 2)
    var whole = channels // 2
    var few = below[SIDE](taps)
    for i in range(rows):
        var line = source.unsafe_offset(i * row).unsafe_bitcast[UInt16]()
        var place = to.unsafe_offset(i * pairs * taps)
        var pair = 0
        if taps == 1:
            # Neighbours are pairs where they lie.
            unsafe_memcpy(dest=place.unsafe_bitcast[UInt16](), src=line, count=2 * whole)
            pair = whole
        elif taps <= SIDE:
            # What a vector writes past its taps, the next one overwrites.
            while pair < whole:
                var first = line.unsafe_offset(2 * pair * taps)
                var a = masked_load[SIDE](first, few, _Halves(0))
                var b = masked_load[SIDE](first.unsafe_offset(taps), few, _Halves(0))
                _store(place.unsafe_offset(pair * taps), a, b)
                pair += 1
        while pair < pairs:
            var first = line.unsafe_offset(2 * pair * taps)
            _pairs[1](
                place.unsafe_offset(pair * taps),
                first,
                first.unsafe_offset(taps),
                2 * pair + 1 < channels,
                taps,
            )
            pair += 1
