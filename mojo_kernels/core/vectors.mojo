"""Vectors of numbers that do not lie side by side, and parts of vectors."""

from std.bit import log2_floor
from std.math import iota
from std.sys import CompilationTarget, simd_width_of
from std.sys.intrinsics import masked_store
from std.utils.index import IndexList

from .memory import Address


# Whether there are 32 registers for vectors, not the 16 of AVX2.
comptime MANY_REGISTERS = CompilationTarget.has_avx512f() or CompilationTarget.has_neon()
# How far apart the numbers of a vector lie in memory at most.
comptime MOST_APART = 4


def _lanes_of_every[width: Int, stride: Int, part: Int, start: Int]() -> IndexList[width]:
    """Where the lanes of `every` come from: a vector that has those of the parts before, or the
    one that begins at `start`."""
    var lanes = IndexList[width](0)
    for i in range(width):
        var place = i * stride
        if place >= part * width:
            lanes[i] = width + min(place - start, width - 1)
        else:
            lanes[i] = place if part == 1 else i
    return lanes


@always_inline
def every[
    dtype: DType, //, stride: Int, width: Int = simd_width_of[dtype]()
](source: Address[dtype]) -> SIMD[dtype, width]:
    """`width` numbers that lie `stride` apart, up to 4; no memory past the last is read."""
    comptime assert stride <= MOST_APART, "such steps have no vectors"
    comptime if stride == 1 or width == 1:
        return source.unsafe_load[width=width](0)
    elif stride == 2:
        var low = source.unsafe_load[width=width](0).deinterleave()[0]
        var high = source.unsafe_load[width=width](width - 1).deinterleave()[1]
        return rebind[SIMD[dtype, width]](low.join(high))
    else:
        var result = source.unsafe_load[width=width](0)
        comptime for part in range(1, stride):
            comptime start = min(part * width, (width - 1) * stride + 1 - width)
            comptime lanes = _lanes_of_every[width, stride, part, start]()
            result = result.shuffle[mask=lanes](source.unsafe_load[width=width](start))
        return result


def _widths[dtype: DType]() -> Int:
    """How many widths a line is tried with: whole, half and quarter vectors, of two lanes or more."""
    return min(3, log2_floor(simd_width_of[dtype]()))


@always_inline
def _copy_every[
    dtype: DType, //, stride: Int
](to: Address[dtype], source: Address[dtype], count: Int):
    """Copies `count` numbers that lie `stride` apart, by vectors as wide as fit."""
    comptime for part in range(_widths[dtype]()):
        comptime width = simd_width_of[dtype]() >> part
        if count >= width:
            for begun in range(0, count, width):
                # The last vector overlaps the one before it.
                var i = min(begun, count - width)
                to.unsafe_store(i, every[stride, width](source.unsafe_offset(i * stride)))
            return
    for i in range(count):
        to[unsafe_offset=i] = source[unsafe_offset = i * stride]


@no_inline
def _copy_strided[
    dtype: DType, //
](to: Address[dtype], source: Address[dtype], stride: Int, count: Int):
    comptime for step in range(2, MOST_APART + 1):
        if stride == step:
            _copy_every[step](to, source, count)
            return
    for i in range(count):
        to[unsafe_offset=i] = source[unsafe_offset = i * stride]


@always_inline
def copy_line[
    dtype: DType, //
](to: Address[dtype], source: Address[dtype], stride: Int, count: Int):
    """Copies `count` numbers that lie `stride` apart."""
    if stride == 1:
        _copy_every[1](to, source, count)
    else:
        _copy_strided(to, source, stride, count)


@always_inline
def copy_backwards[dtype: DType, //](to: Address[dtype], source: Address[dtype], count: Int):
    """Copies `count` numbers, the first from `source` and each next one from before the last."""
    comptime for part in range(_widths[dtype]()):
        comptime width = simd_width_of[dtype]() >> part
        if count >= width:
            for begun in range(0, count, width):
                # The last vector overlaps the one before it.
                var j = min(begun, count - width)
                to.unsafe_store(j, source.unsafe_load[width=width](1 - width - j).reversed())
            return
    for j in range(count):
        to[unsafe_offset=j] = source[unsafe_offset=-j]


def _lanes_apart[width: Int, stride: Int, part: Int]() -> IndexList[width]:
    """Which lane goes to each place of a part of `width` places, or to the one before it that is
    written."""
    var lanes = IndexList[width](0)
    for i in range(width):
        lanes[i] = (part * width + i) // stride
    return lanes


def _written[width: Int, stride: Int, part: Int]() -> SIMD[DType.bool, width]:
    """Which places of a part are written."""
    var found = SIMD[DType.bool, width](fill=False)
    for i in range(width):
        found[i] = (part * width + i) % stride == 0
    return found


@always_inline
def _spread[
    dtype: DType, //, stride: Int, width: Int
](to: Address[dtype], some: SIMD[dtype, width]):
    """Writes a vector to places that lie `stride` apart."""
    comptime for part in range(stride):
        comptime lanes = _lanes_apart[width, stride, part]()
        comptime there = _written[width, stride, part]()
        masked_store(some.shuffle[mask=lanes](), to.unsafe_offset(part * width), there)


@no_inline
def spread_line[
    dtype: DType, //
](to: Address[dtype], source: Address[dtype], stride: Int, count: Int):
    """Copies `count` numbers to places that lie `stride` apart, and writes nothing between them."""
    # Masked stores of AVX2 take AMD's cores longer than single numbers.
    comptime if CompilationTarget.has_avx512f():
        comptime for step in range(2, MOST_APART + 1):
            if stride == step:
                comptime for part in range(_widths[dtype]()):
                    comptime width = simd_width_of[dtype]() >> part
                    if count >= width:
                        for begun in range(0, count, width):
                            var i = min(begun, count - width)
                            var some = source.unsafe_load[width=width](i)
                            _spread[step](to.unsafe_offset(i * step), some)
                        return
    for i in range(count):
        to[unsafe_offset = i * stride] = source[unsafe_offset=i]


@always_inline
def below[width: Int](count: Int) -> SIMD[DType.bool, width]:
    """The lanes with a number less than `count`."""
    return iota[DType.int32, width]().lt(Int32(count))


@always_inline
def totals[
    dtype: DType, width: Int, count: Int, //, some: Int
](sums: Array[SIMD[dtype, width], count], start: Int) -> SIMD[dtype, some]:
    """The sums of `some` vectors from `start` on, side by side."""
    # Interleaving two vectors and adding the halves keeps both sums apart, in half as many lanes.
    var parts = Array[SIMD[dtype, width], some](fill=SIMD[dtype, width](0))
    comptime for i in range(some):
        parts[i] = sums[start + i]
    comptime for round in range(log2_floor(some)):
        comptime half = some >> (round + 1)
        comptime for i in range(half):
            var both = parts[i].interleave(parts[i + half])
            parts[i] = both.slice[width, offset=0]() + both.slice[width, offset=width]()
    var total = parts[0]
    comptime if some == width:
        return rebind[SIMD[dtype, some]](total)
    else:
        # Lanes `some` apart belong to the same vector.
        var result = total.slice[some, offset=0]()
        comptime for i in range(some, width, some):
            result += total.slice[some, offset=i]()
        return result
