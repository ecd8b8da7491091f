"""Writes by index that combine what falls together, in the order of the indices whatever the
number of threads."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of

from ..core.indices import check_range
from ..core.memory import Address, untracked
from ..core.team import in_ranges, parallelism_level, sync_parallelize, task_count
from .combining import combined, neutral

comptime GRAIN = 16384


def copy_all[dtype: DType](to: Address[dtype], source: Address[dtype], n: Int, zero: Bool):
    """Copies `n` values, or sets them to zero."""
    comptime width = simd_width_of[dtype]()

    def work(lower: Int, upper: Int) {var to, var source, var zero}:
        var at = lower
        while at + width <= upper:
            var block = SIMD[dtype, width](0)
            if not zero:
                block = source.unsafe_load[width=width](at)
            to.unsafe_store[width=width](at, block)
            at += width
        while at < upper:
            to[unsafe_offset=at] = Scalar[dtype](0) if zero else source[unsafe_offset=at]
            at += 1

    in_ranges(work, n, task_count(n, n, 4 * GRAIN))


@always_inline
def split(outer: Int, inner: Int, cost: Int, grain: Int) -> Tuple[Int, Int]:
    """Into how many parts `outer` lines and the `inner` columns of each are divided for the
    threads."""
    var steps = outer * inner * cost
    var tasks = task_count(steps, steps, GRAIN)
    if outer >= tasks:
        return (tasks, 1)
    return (1, max(1, min(tasks, inner // grain)))


@register("tmb_scatter_rows")
struct ScatterRows:
    """`output[o, index[j], i]` combined with `source[o, j, i]`, for j in order. `output` may be the
    memory of `self`; an index that is out of range changes nothing of it.

    `output` starts as `self`, or as zeros if that has no elements. Unless `include_self`, what an
    index names starts from the neutral element. Negative indices count from the end if `wrap`;
    `skip` is an index that is left out (-1: none)."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        base: InputTensor[dtype=dtype, rank=3, ...],
        index: InputTensor[dtype=DType.int64, rank=1, ...],
        source: InputTensor[dtype=dtype, rank=3, ...],
        wrap: Int64,
        skip: Int64,
        include_self: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own scatter"
        var outer = output.dim_size[0]()
        var n = output.dim_size[1]()
        var inner = output.dim_size[2]()
        var count = index.dim_size[0]()
        var to = untracked(output.unsafe_ptr())
        var at = untracked(index.unsafe_ptr())
        var from_ = untracked(source.unsafe_ptr())
        if source.dim_size[0]() != outer or source.dim_size[1]() != count or (
            source.dim_size[2]() != inner
        ):
            raise Error("the values do not have the shape that the indices ask for")
        check_range(at, count, -n if wrap != 0 else 0, n)
        var start = untracked(base.unsafe_ptr())
        var from_zeros = base.size() == 0
        var with_self = include_self != 0
        var fresh = from_zeros or Int(start) != Int(to)
        comptime width = simd_width_of[dtype]()
        if outer * count != 0 and inner >= 4 * width and (fresh or count >= n // 8):
            _row_by_row[kind](
                to, start, at, from_, outer, n, inner, count, Int(skip), with_self, from_zeros
            )
            return
        if fresh:
            copy_all[dtype](to, start, outer * n * inner, from_zeros)
        if outer * inner * count == 0:
            return
        var parts = split(outer, inner, count, 4 * width)
        var lines = ceildiv(outer, parts[0])
        var columns = ceildiv(inner, parts[1])
        var across = parts[1]
        var left_out = Int(skip)

        def work(
            task: Int,
        ) {
            var to,
            var at,
            var from_,
            var outer,
            var n,
            var inner,
            var count,
            var lines,
            var columns,
            var across,
            var left_out,
            var with_self,
        }:
            var first_line = (task // across) * lines
            var low = (task % across) * columns
            var high = min(inner, low + columns)
            for line in range(first_line, min(outer, first_line + lines)):
                var line_to = to.unsafe_offset(line * n * inner)
                var line_from = from_.unsafe_offset(line * count * inner)
                if not with_self:
                    for j in range(count):
                        var place = Int(at[unsafe_offset=j])
                        place = place + n if place < 0 else place
                        for i in range(low, high):
                            line_to[unsafe_offset=place * inner + i] = neutral[dtype, kind]()
                for j in range(count):
                    var place = Int(at[unsafe_offset=j])
                    place = place + n if place < 0 else place
                    if place == left_out:
                        continue
                    var row = line_to.unsafe_offset(place * inner)
                    var values = line_from.unsafe_offset(j * inner)
                    var i = low
                    while i + width <= high:
                        row.unsafe_store[width=width](
                            i,
                            combined[kind](
                                row.unsafe_load[width=width](i),
                                values.unsafe_load[width=width](i),
                            ),
                        )
                        i += width
                    while i < high:
                        row[unsafe_offset=i] = combined[kind](
                            row[unsafe_offset=i], values[unsafe_offset=i]
                        )
                        i += 1

        sync_parallelize(work, parts[0] * parts[1])


def _row_by_row[
    dtype: DType, //, kind: StaticString
](
    to: Address[dtype],
    base: Address[dtype],
    at: Address[DType.int64],
    source: Address[dtype],
    outer: Int,
    n: Int,
    inner: Int,
    count: Int,
    skip: Int,
    with_self: Bool,
    zero: Bool,
):
    """Writes each row of the result once, with all that falls into it in the order of the
    indices."""
    # For each row the numbers of its sources: those of row r end at `ends[r]`.
    var ends = List[Int64](length=n + 1, fill=0)
    var sources = List[Int64](unsafe_uninit_length=count)
    for j in range(count):
        var place = Int(at[unsafe_offset=j])
        place = place + n if place < 0 else place
        if place != skip:
            ends[place + 1] += 1
    var most = 0
    for row in range(n):
        most = max(most, Int(ends[row + 1]))
        ends[row + 1] += ends[row]
    for j in range(count):
        var place = Int(at[unsafe_offset=j])
        place = place + n if place < 0 else place
        if place != skip:
            sources[Int(ends[place])] = Int64(j)
            ends[place] += 1
    var last = untracked(ends.unsafe_ptr())
    var numbers = untracked(sources.unsafe_ptr())
    comptime block = 4 * simd_width_of[dtype]()
    var threads = parallelism_level(None)
    # Where one row has much of the work, its columns are shared out.
    var across = min(threads, inner // block) if 2 * threads * most > count else 1
    var columns = ceildiv(ceildiv(inner, across), block) * block
    var rows = max(1, GRAIN * across // (inner * (1 + count // n)))
    var units = ceildiv(outer * n, rows)

    def work(
        task: Int,
    ) {
        var to, var base, var source, var last, var numbers, var outer, var n, var inner,
        var count, var with_self, var zero, var across, var columns, var rows,
    }:
        var low = task % across * columns
        var high = min(inner, low + columns)
        var first = task // across * rows
        for row in range(first, min(outer * n, first + rows)):
            var place = row % n
            var begin = 0 if place == 0 else Int(last[unsafe_offset = place - 1])
            var end = Int(last[unsafe_offset=place])
            if begin == end and Int(base) == Int(to) and not zero:
                continue
            var sink = to.unsafe_offset(row * inner)
            var values = source.unsafe_offset(row // n * count * inner)
            var kept = sink if zero else base.unsafe_offset(row * inner)
            var i = low
            while i + block <= high:
                _combine_column[kind, block](
                    sink, kept, values, numbers, begin, end, inner, i, with_self, zero
                )
                i += block
            while i < high:
                _combine_column[kind, 1](
                    sink, kept, values, numbers, begin, end, inner, i, with_self, zero
                )
                i += 1

    sync_parallelize(work, units * across)
    _ = ends^
    _ = sources^


@always_inline
def _combine_column[
    dtype: DType, //, kind: StaticString, width: Int
](
    to: Address[dtype],
    base: Address[dtype],
    source: Address[dtype],
    numbers: Address[DType.int64],
    begin: Int,
    end: Int,
    inner: Int,
    column: Int,
    with_self: Bool,
    zero: Bool,
):
    """`width` columns of a row: what the sources numbered from `begin` to `end` add up to."""
    var result = SIMD[dtype, width](0)
    if with_self or begin == end:
        if not zero:
            result = base.unsafe_load[width=width](column)
    else:
        result = SIMD[dtype, width](neutral[dtype, kind]())
    for k in range(begin, end):
        var row = source.unsafe_offset(Int(numbers[unsafe_offset=k]) * inner)
        result = combined[kind](result, row.unsafe_load[width=width](column))
    to.unsafe_store(column, result)


@register("tmb_scatter_elements")
struct ScatterElements:
    """`output[.., index[.., j, ..], ..]` combined with `source[.., j, ..]`, for j in order, at
    each place of the index, which is no larger than `source`, and than `output` but along
    `axis`. `output` starts as `base`, whose memory it may be, or as zeros if that has no
    elements."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        base: InputTensor[dtype=dtype, rank=rank, ...],
        index: InputTensor[dtype=DType.int64, rank=rank, ...],
        source: InputTensor[dtype=dtype, rank=rank, ...],
        axis: Int64,
        include_self: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own scatter"
        comptime last = rank - 1
        var along = Int(axis)
        var with_self = include_self != 0
        var to = untracked(output.unsafe_ptr())
        var at = untracked(index.unsafe_ptr())
        var from_ = untracked(source.unsafe_ptr())
        var sizes = index.shape()
        var outputs = output.shape()
        var sources = source.shape()
        comptime for i in range(rank):
            if sizes[i] > sources[i] or (i != along and sizes[i] > outputs[i]):
                raise Error("the index is larger than what it indexes in dimension ", i)
        check_range(at, index.size(), 0, outputs[along])
        var start = untracked(base.unsafe_ptr())
        var zero = base.size() == 0
        if zero or Int(start) != Int(to):
            copy_all[dtype](to, start, output.size(), zero)
        if index.size() == 0:
            return
        var count = sizes[along]
        var inner = 1 if along == last else sizes[last]
        var outer = index.size() // (count * inner)
        var index_step = 1
        var output_step = 1
        var source_step = 1
        for i in range(along + 1, rank):
            index_step *= sizes[i]
            output_step *= outputs[i]
            source_step *= sources[i]
        var parts = split(outer, inner, count, 16)
        var lines = ceildiv(outer, parts[0])
        var columns = ceildiv(inner, parts[1])
        var across = parts[1]

        def work(
            task: Int,
        ) {
            var to,
            var at,
            var from_,
            var sizes,
            var outputs,
            var sources,
            var outer,
            var inner,
            var count,
            var index_step,
            var output_step,
            var source_step,
            var lines,
            var columns,
            var across,
            var along,
            var with_self,
        }:
            var first_line = (task // across) * lines
            var low = (task % across) * columns
            var high = min(inner, low + columns)
            for line in range(first_line, min(outer, first_line + lines)):
                var rest = line
                var to_at = 0
                var index_at = 0
                var source_at = 0
                var to_stride = 1
                var index_stride = 1
                var source_stride = 1
                comptime for back in range(rank):
                    comptime i = rank - 1 - back
                    if i != along and i != last:
                        var here = rest % sizes[i]
                        rest //= sizes[i]
                        to_at += here * to_stride
                        index_at += here * index_stride
                        source_at += here * source_stride
                    to_stride *= outputs[i]
                    index_stride *= sizes[i]
                    source_stride *= sources[i]
                var tp = to.unsafe_offset(to_at)
                var ip = at.unsafe_offset(index_at)
                var fp = from_.unsafe_offset(source_at)
                if not with_self:
                    for j in range(count):
                        for i in range(low, high):
                            var place = Int(ip[unsafe_offset=j * index_step + i])
                            tp[unsafe_offset=place * output_step + i] = neutral[dtype, kind]()
                for j in range(count):
                    for i in range(low, high):
                        var place = (
                            Int(ip[unsafe_offset=j * index_step + i]) * output_step + i
                        )
                        tp[unsafe_offset=place] = combined[kind](
                            tp[unsafe_offset=place], fp[unsafe_offset=j * source_step + i]
                        )

        sync_parallelize(work, parts[0] * parts[1])
