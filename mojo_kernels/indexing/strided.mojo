"""Copies out of memory that only strides describe."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.memory import unsafe_memset_zero
from std.sys import simd_width_of
from std.utils.index import IndexList

from ..core.memory import Address, untracked
from ..core.team import in_ranges
from ..core.vectors import copy_backwards

# Numbers of a task.
comptime GRAIN = 32768
# Rows and columns of a block that is transposed in the cache.
comptime TILE = 16
# Numbers of a part of a line.
comptime LINE = 8192
comptime LEVELS = 4


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
](x: Address[dtype], to: Address[dtype], size: IndexList[rank], stride: IndexList[rank]):
    """Makes `to` the contiguous `[*size]` of what is `stride` apart from `x` on."""
    comptime last = rank - 1
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
    var part = LINE if near == last else TILE
    var blocks = ceildiv(size[near], part)
    var units = blocks
    for i in range(last):
        units *= 1 if i == near else size[i]
    var each = max(1, GRAIN // max(1, min(n, LINE) if near == last else n * TILE))

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
        for _ in range(lower, upper):
            var first = block * part
            var from_here = source.unsafe_offset(first * stride[near])
            var to_here = sink.unsafe_offset(first * place[near])
            var count = min(part, size[near] - first)
            if near != last:
                _turned(from_here, to_here, count, n, step, place[near])
            elif step == 1:
                _line(from_here, to_here, count)
            elif step == -1:
                copy_backwards(to_here, from_here, count)
            elif step == 2:
                _every_other(from_here, to_here, count)
            else:
                for j in range(count):
                    to_here[unsafe_offset=j] = from_here[unsafe_offset = j * step]
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
def _line[dtype: DType, //](x: Address[dtype], to: Address[dtype], n: Int):
    comptime width = 4 * simd_width_of[dtype]()
    var j = 0
    while j + width <= n:
        to.unsafe_store(j, x.unsafe_load[width=width](j))
        j += width
    while j < n:
        to[unsafe_offset=j] = x[unsafe_offset=j]
        j += 1


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


@always_inline
def _turned[
    dtype: DType, //
](x: Address[dtype], to: Address[dtype], rows: Int, columns: Int, step: Int, across: Int):
    """`rows` neighbours of `x`, at each of `columns` places `step` apart, as rows of `to`,
    `across` apart."""
    if columns == 2 and across == 2 and rows == TILE:
        var first = x.unsafe_load[width=TILE]()
        to.unsafe_store(0, first.interleave(x.unsafe_load[width=TILE](step)))
    elif columns == 4 and across == 4 and rows == TILE:
        var even = x.unsafe_load[width=TILE]().interleave(x.unsafe_load[width=TILE](2 * step))
        var odd = x.unsafe_load[width=TILE](step).interleave(x.unsafe_load[width=TILE](3 * step))
        to.unsafe_store(0, even.interleave(odd))
    else:
        _transposed(x, to, rows, columns, step, across)


def _transposed[
    dtype: DType, //
](x: Address[dtype], to: Address[dtype], rows: Int, columns: Int, step: Int, across: Int):
    var j = 0
    while j + TILE <= columns and rows == TILE:
        var block = Array[SIMD[dtype, TILE], TILE](fill=0)
        comptime for k in range(TILE):
            block[k] = x.unsafe_load[width=TILE]((j + k) * step)
        # Shuffling the first half of the rows into the second, as often as TILE halves.
        comptime for _ in range(LEVELS):
            var shuffled = Array[SIMD[dtype, TILE], TILE](fill=0)
            comptime for k in range(TILE // 2):
                var pair = block[k].interleave(block[k + TILE // 2])
                shuffled[2 * k] = pair.slice[TILE]()
                shuffled[2 * k + 1] = pair.slice[TILE, offset=TILE]()
            block = shuffled^
        comptime for i in range(TILE):
            to.unsafe_store(i * across + j, block[i])
        j += TILE
    while j < columns:
        for i in range(rows):
            to[unsafe_offset = i * across + j] = x[unsafe_offset = j * step + i]
        j += 1


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
                        _line(given.unsafe_offset(at * inner), into, inner)
                    elif zero:
                        unsafe_memset_zero(into, count=inner)
                    else:
                        _line(kept.unsafe_offset(i * inner), into, inner)

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
        _line(base, to, start)
        _line(base.unsafe_offset(rest), to.unsafe_offset(rest), size - rest)
    while i < count:
        to[unsafe_offset = start + i * step] = part[unsafe_offset=i]
        i += 1
