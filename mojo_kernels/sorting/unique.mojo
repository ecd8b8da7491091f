"""Runs of equal rows, from which come distinct values, their places and how often they occur."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, iota

from ..core.counts import counts_before
from ..core.lines import each_line
from ..core.memory import Address, untracked
from ..core.team import sync_parallelize

# Rows of a part of the work.
comptime PART = 32768
# Elements that are looked at together.
comptime LANES = 16


@always_inline
def _row_before[
    dtype: DType, //
](a: Address[dtype], b: Address[dtype], width: Int) -> Bool:
    """Whether row `a` stands before row `b`, by the first column that differs."""
    for i in range(width):
        var left = a[unsafe_offset=i]
        var right = b[unsafe_offset=i]
        if left < right:
            return True
        if right < left:
            return False
    return False


@register("tmb_order_rows")
struct OrderRows:
    """The order of the rows of `[n, width]` by their columns; stable. The second output is
    scratch."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        order: OutputTensor[dtype=DType.int64, rank=1, ...],
        spare: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        var n = x.dim_size[0]()
        var width = x.dim_size[1]()
        var rows = untracked(x.unsafe_ptr())
        var result = untracked(order.unsafe_ptr())
        var other = untracked(spare.unsafe_ptr())

        @always_inline
        def work(line: Int) {var rows, var result, var other, var n, var width}:
            var v = result
            var w = other
            for at in range(n):
                v[unsafe_offset=at] = Int64(at)
            var run = 1
            while run < n:
                var start = 0
                while start < n:
                    var middle = min(start + run, n)
                    var end = min(start + 2 * run, n)
                    var left = start
                    var right = middle
                    for to in range(start, end):
                        var take_right = right < end
                        if take_right and left < middle:
                            take_right = _row_before(
                                rows.unsafe_offset(Int(v[unsafe_offset=right]) * width),
                                rows.unsafe_offset(Int(v[unsafe_offset=left]) * width),
                                width,
                            )
                        var at = right if take_right else left
                        w[unsafe_offset=to] = v[unsafe_offset=at]
                        if take_right:
                            right += 1
                        else:
                            left += 1
                    start = end
                swap(v, w)
                run *= 2
            if v != result:
                for at in range(n):
                    result[unsafe_offset=at] = v[unsafe_offset=at]

        each_line[target=target](work, 1, n, ctx)


@always_inline
def _is_new[dtype: DType, //](row: Address[dtype], width: Int) -> Bool:
    """Whether a row differs from the one before it; true of NaN as well: each is a value of its
    own."""
    var before = row.unsafe_offset(-width)
    var differs = row[unsafe_offset=0] != before[unsafe_offset=0]
    for i in range(1, width):
        differs = differs or row[unsafe_offset=i] != before[unsafe_offset=i]
    return differs


@always_inline
def _new_from[dtype: DType, //](values: Address[dtype], at: Int) -> Int:
    """How many of the elements from there on, of as many as are looked at together, differ from
    the one before."""
    var here = values.unsafe_load[width=LANES](at)
    var new = here.ne(values.unsafe_load[width=LANES](at - 1))
    return Int(new.cast[DType.uint8]().reduce_add())


def _runs_before[
    dtype: DType, //
](rows: Address[dtype], n: Int, width: Int) -> List[Int]:
    """How many runs of equal rows begin before each part, and at last how many there are."""

    def count(lower: Int, upper: Int) {var rows, var width} -> Int:
        var total = Int(lower == 0)
        var i = max(lower, 1)
        while width == 1 and i + LANES <= upper:
            total += _new_from(rows, i)
            i += LANES
        while i < upper:
            total += Int(_is_new(rows.unsafe_offset(i * width), width))
            i += 1
        return total

    return counts_before(count, n, PART)


@register("tmb_count_runs")
struct CountRuns:
    """How many runs of equal rows `[n, width]` has; width is not 0."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "it counts in parts"
        var rows = untracked(x.unsafe_ptr())
        var before = _runs_before(rows, x.dim_size[0](), x.dim_size[1]())
        output.unsafe_ptr()[unsafe_offset=0] = Int64(before[len(before) - 1])


@register("tmb_consecutive")
struct Consecutive:
    """The first row of each run of equal rows of `[n, width]`; the run of each row, and the
    length of each run, where these results are not empty. The run of row i stands at `places[i]`,
    or at i if that is empty. `numbers` only tells how many runs there are."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=2, ...],
        inverse: OutputTensor[dtype=DType.int64, rank=1, ...],
        lengths: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        places: InputTensor[dtype=DType.int64, rank=1, ...],
        numbers: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "it counts in parts"
        var n = x.dim_size[0]()
        var width = x.dim_size[1]()
        var count = values.dim_size[0]()
        var rows = untracked(x.unsafe_ptr())
        var firsts = untracked(values.unsafe_ptr())
        var run_of = untracked(inverse.unsafe_ptr())
        var sizes = untracked(lengths.unsafe_ptr())
        var at = untracked(places.unsafe_ptr())
        var moved = places.dim_size[0]() != 0
        var numbered = inverse.dim_size[0]() != 0
        var measured = lengths.dim_size[0]() != 0
        var before = _runs_before(rows, n, width)
        var parts = len(before) - 1
        if before[parts] != count:
            raise Error("there are ", before[parts], " runs where ", count, " are needed")
        var bp = untracked(before.unsafe_ptr())

        def work(part: Int) {
            var rows,
            var firsts,
            var run_of,
            var sizes,
            var at,
            var bp,
            var n,
            var width,
            var moved,
            var numbered,
            var measured,
        }:
            var to = bp[unsafe_offset=part]
            var full = bp[unsafe_offset=part + 1]
            var i = part * PART
            var end = min(n, (part + 1) * PART)
            while i < end and (numbered or to < full):
                if width == 1 and i > 0 and i + LANES <= end and not (numbered and moved):
                    var new = _new_from(rows, i)
                    if new == 0:
                        if numbered:
                            run_of.unsafe_store(i, SIMD[DType.int64, LANES](Int64(to - 1)))
                        i += LANES
                        continue
                    if new == LANES:
                        firsts.unsafe_store(to, rows.unsafe_load[width=LANES](i))
                        if measured:
                            sizes.unsafe_store(to, iota[DType.int64, LANES](Int64(i)))
                        if numbered:
                            run_of.unsafe_store(i, iota[DType.int64, LANES](Int64(to)))
                        to += LANES
                        i += LANES
                        continue
                var stop = min(end, i + LANES)
                while i < stop:
                    var row = rows.unsafe_offset(i * width)
                    # Written at each row, and kept of the first of a run: nothing to guess for
                    # the processor.
                    if to < full:
                        for j in range(width):
                            firsts[unsafe_offset=to * width + j] = row[unsafe_offset=j]
                        if measured:
                            sizes[unsafe_offset=to] = Int64(i)
                    to += Int(i == 0 or _is_new(row, width))
                    if numbered:
                        var place = Int(at[unsafe_offset=i]) if moved else i
                        run_of[unsafe_offset=place] = Int64(to - 1)
                    i += 1

        sync_parallelize(work, parts)
        if measured:
            for run in range(count):
                var end = Int64(n) if run + 1 == count else sizes[unsafe_offset=run + 1]
                sizes[unsafe_offset=run] = end - sizes[unsafe_offset=run]
        _ = before^
