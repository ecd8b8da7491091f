"""Copies out of memory that only strides describe."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.memory import unsafe_memset_zero
from std.sys import simd_width_of
from std.utils.index import IndexList

from ..core.memory import Address, untracked
from ..core.team import in_ranges
from ..core.transposing import STRIP, transpose
from ..core.vectors import copy_backwards, copy_line

# Numbers of a task.
comptime GRAIN = 32768
# Numbers of a part of a line.
comptime LINE = 8192


def check_reach[
    rank: Int
](size: IndexList[rank], stride: IndexList[rank], offset: Int, count: Int) raises:
    """Raises unless all that the strides reach lies within `count` elements."""
    var least = offset
    var most = offset
    for i in range(rank):
        if size[i] == 0:
            return
        var reach = (size[i] - 1) * stride[i]
        least += min(reach, 0)
        most += max(reach, 0)
    if least < 0 or most >= count:
        raise Error(
            "as_strided reaches elements ", least, " to ", most, " of a tensor of ", count
        )


def strided_copy[
    dtype: DType, rank: Int, //
](x: Address[dtype], to: Address[dtype], sizes: IndexList[rank], strides: IndexList[rank]):
    """Makes `to` the contiguous `[*sizes]` of what is `strides` apart from `x` on."""
    comptime assert rank > 1, "such copies have lines"
    comptime last = rank - 1
    # The dims, the last at the end. Those that follow each other in memory are one.
    var size = IndexList[rank](1)
    var stride = IndexList[rank](0)
    var dim = last
    for i in range(last, -1, -1):
        if size[dim] != 1 and sizes[i] != 1:
            if strides[i] == stride[dim] * size[dim]:
                size[dim] *= sizes[i]
                continue
            dim -= 1
        if sizes[i] != 1:
            size[dim] = sizes[i]
            stride[dim] = strides[i]
    var n = size[last]
    var step = stride[last]
    # The dim along which `x` is read in its order, and how far apart `to` has its elements.
    var near = last
    if step != 1:
        for i in range(last):
            if stride[i] == 1 and size[i] >= 4:
                near = i
    # How far apart `to` has the neighbours of each dim.
    var place = IndexList[rank](1)
    comptime for i in range(last - 1, -1, -1):
        place[i] = place[i + 1] * size[i + 1]
    # A unit of work is a part of a line, or some lines of it side by side.
    var part = LINE if near == last else STRIP
    var blocks = ceildiv(size[near], part)
    var units = blocks
    for i in range(last):
        units *= 1 if i == near else size[i]
    var each = max(1, GRAIN // max(1, min(n, LINE) if near == last else n * STRIP))

    def work(lower: Int, upper: Int) {
        var x, var to, var size, var stride, var place, var n, var step, var near, var part,
        var blocks
    }:
        var at = IndexList[rank](0)
        var source = x
        var sink = to
        var rest = lower // blocks
        var block = lower % blocks
        comptime for i in range(last - 1, -1, -1):
            if i != near:
                at[i] = rest % size[i]
                rest //= size[i]
                source = source.unsafe_offset(at[i] * stride[i])
                sink = sink.unsafe_offset(at[i] * place[i])
        var unit = lower
        while unit < upper:
            if near == last and blocks == 1:
                # The lines that are the same distance apart.
                var lines = min(upper - unit, size[last - 1] - at[last - 1])
                _lines(source, sink, lines, n, step, stride[last - 1])
                unit += lines
                at[last - 1] += lines - 1
                source = source.unsafe_offset((lines - 1) * stride[last - 1])
                sink = sink.unsafe_offset((lines - 1) * n)
            else:
                var first = block * part
                var from_here = source.unsafe_offset(first * stride[near])
                var to_here = sink.unsafe_offset(first * place[near])
                var count = min(part, size[near] - first)
                if near == last:
                    _lines(from_here, to_here, 1, count, step, 0)
                else:
                    transpose(to_here, from_here, count, n, place[near], step)
                unit += 1
                block += 1
                if block < blocks:
                    continue
                block = 0
            # To the next line: counting costs less than dividing.
            var carry = True
            comptime for i in range(last - 1, -1, -1):
                if carry and i != near:
                    at[i] += 1
                    source = source.unsafe_offset(stride[i])
                    sink = sink.unsafe_offset(place[i])
                    carry = at[i] == size[i]
                    if carry:
                        at[i] = 0
                        source = source.unsafe_offset(-size[i] * stride[i])
                        sink = sink.unsafe_offset(-size[i] * place[i])

    in_ranges(work, units, ceildiv(units, each))


@always_inline
def _lines[
    dtype: DType, //
](x: Address[dtype], to: Address[dtype], lines: Int, n: Int, step: Int, apart: Int):
    """Lines of `n` numbers that are `step` apart in `x`, whose first are `apart`."""
    for i in range(lines):
        var source = x.unsafe_offset(i * apart)
        var sink = to.unsafe_offset(i * n)
        if step == 1:
            copy_line(sink, source, 1, n)
        elif step == -1:
            copy_backwards(sink, source, n)
        elif step == 2:
            _every_other(source, sink, n)
        else:
            for j in range(n):
                sink[unsafe_offset=j] = source[unsafe_offset = j * step]


@always_inline
def _every_other[dtype: DType, //](x: Address[dtype], to: Address[dtype], n: Int):
    comptime width = simd_width_of[dtype]()
    comptime for halves in range(3):
        comptime part = width >> halves
        comptime if part > 1:
            if n > part:
                return _pairs[part](x, to, n)
    for j in range(n):
        to[unsafe_offset=j] = x[unsafe_offset = 2 * j]


@always_inline
def _pairs[dtype: DType, //, width: Int](x: Address[dtype], to: Address[dtype], n: Int):
    """The first of each of `n` pairs, which are more than `width`."""
    var j = 0
    # The last vector would reach one number too far.
    while j + width < n:
        var pairs = x.unsafe_load[width = 2 * width](2 * j).deinterleave()
        to.unsafe_store(j, pairs[0])
        j += width
    # It begins one number earlier, among what is written already.
    var rest = x.unsafe_load[width = 2 * width](2 * (n - width) - 1).deinterleave()
    to.unsafe_store(n - width, rest[1])


@register("tmb_strided")
struct Strided:
    """The elements of `x` that `layout`, the strides of each dim of the result and then the
    offset of the first, picks.

    Raises if any of them lies outside."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=1, ...],
        layout: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own gather"
        var size = IndexList[rank](0)
        var stride = IndexList[rank](0)
        var count = 1
        comptime for i in range(rank):
            size[i] = output.dim_size[i]()
            stride[i] = Int(layout.unsafe_ptr()[unsafe_offset=i])
            count *= size[i]
        var offset = Int(layout.unsafe_ptr()[unsafe_offset=rank])
        check_reach(size, stride, offset, x.dim_size[0]())
        if count == 0:
            return
        strided_copy(
            untracked(x.unsafe_ptr()).unsafe_offset(offset),
            untracked(output.unsafe_ptr()),
            size,
            stride,
        )


@register("tmb_slice_scatter")
struct SliceScatter:
    """`x` `[outer, size, inner]`, or zeros if it has no elements, with `part`
    `[outer, count, inner]` at every `place[1]`-th position of the middle dim from `place[0]` on.

    Raises if one of those lies outside."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        part: InputTensor[dtype=dtype, rank=3, ...],
        place: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own gather"
        var start = Int(place.unsafe_ptr()[unsafe_offset=0])
        var step = Int(place.unsafe_ptr()[unsafe_offset=1])
        var outer = output.dim_size[0]()
        var size = output.dim_size[1]()
        var inner = output.dim_size[2]()
        var count = part.dim_size[1]()
        var last = start + (count - 1) * step
        if step < 1 or (count > 0 and (start < 0 or last >= size)):
            raise Error(
                "a slice of ", count, " elements from ", start, " every ", step,
                " is outside of a dimension of ", size,
            )
        if outer * size * inner == 0:
            return
        var to = untracked(output.unsafe_ptr())
        var base = untracked(x.unsafe_ptr())
        var source = untracked(part.unsafe_ptr())
        var zero = x.size() == 0
        # The middle dim is shared out as well where there are few lines.
        var rows = size if inner == 1 else max(1, min(size, GRAIN // inner))
        var blocks = ceildiv(size, rows)
        var each = max(1, GRAIN // (rows * inner))

        def work(lower: Int, upper: Int) {
            var to, var base, var source, var zero, var start, var step, var size, var inner,
            var count, var rows, var blocks
        }:
            for unit in range(lower, upper):
                var line = unit // blocks
                var first = unit % blocks * rows
                var sink = to.unsafe_offset(line * size * inner)
                var kept = sink
                if not zero:
                    kept = base.unsafe_offset(line * size * inner)
                var given = source.unsafe_offset(line * count * inner)
                if inner == 1:
                    _placed_line(sink, kept, given, zero, size, start, step, count)
                    continue
                for i in range(first, min(size, first + rows)):
                    var at = (i - start) // step
                    var into = sink.unsafe_offset(i * inner)
                    if i >= start and at < count and at * step == i - start:
                        copy_line(into, given.unsafe_offset(at * inner), 1, inner)
                    elif zero:
                        unsafe_memset_zero(into, count=inner)
                    else:
                        copy_line(into, kept.unsafe_offset(i * inner), 1, inner)

        in_ranges(work, outer * blocks, ceildiv(outer * blocks, each))


@always_inline
def _placed_line[
    dtype: DType, //
](
    to: Address[dtype], base: Address[dtype], part: Address[dtype], zero: Bool, size: Int,
    start: Int, step: Int, count: Int,
):
    """A line of `base`, or of zeros, with `part` at every `step`-th place from `start` on."""
    comptime width = 2 * simd_width_of[dtype]()
    var i = 0
    if step == 2:
        # Pairs: one of the part and what follows it.
        var pairs = (min(count, (size - start) // 2)) // width * width
        for j in range(0, pairs, width):
            var given = part.unsafe_load[width=width](j)
            var kept = SIMD[dtype, width](0)
            if not zero:
                var pair = base.unsafe_load[width = 2 * width](start + 2 * j)
                kept = rebind[SIMD[dtype, width]](pair.deinterleave()[1])
            to.unsafe_store(start + 2 * j, given.interleave(kept))
        i = pairs
    var rest = start + i * step
    if zero:
        unsafe_memset_zero(to, count=start)
        unsafe_memset_zero(to.unsafe_offset(rest), count=size - rest)
    else:
        copy_line(to, base, 1, start)
        copy_line(to.unsafe_offset(rest), base.unsafe_offset(rest), 1, size - rest)
    while i < count:
        to[unsafe_offset = start + i * step] = part[unsafe_offset=i]
        i += 1
