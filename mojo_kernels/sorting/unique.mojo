"""Runs of equal rows, from which come distinct values, their places and how often they occur."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.lines import each_line
from ..core.memory import Address, untracked


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


@register("tmb_runs")
struct Runs:
    """Numbers the runs of equal rows of `x[order[i]]`: the run of each i, the run of each row
    of `x`, and how many there are."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        runs: OutputTensor[dtype=DType.int64, rank=1, ...],
        inverse: OutputTensor[dtype=DType.int64, rank=1, ...],
        count: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        order: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var n = x.dim_size[0]()
        var width = x.dim_size[1]()
        var rows = untracked(x.unsafe_ptr())
        var places = untracked(order.unsafe_ptr())
        var run_of = untracked(runs.unsafe_ptr())
        var back = untracked(inverse.unsafe_ptr())
        var total = untracked(count.unsafe_ptr())

        @always_inline
        def work(
            line: Int,
        ) {var rows, var places, var run_of, var back, var total, var n, var width}:
            var run = Int64(-1)
            var last = rows
            for i in range(n):
                var place = Int(places[unsafe_offset=i])
                var row = rows.unsafe_offset(place * width)
                var fresh = i == 0
                for j in range(width):
                    # True of NaN as well: each is a value of its own.
                    fresh = fresh or row[unsafe_offset=j] != last[unsafe_offset=j]
                run += Int64(fresh)
                run_of[unsafe_offset=i] = run
                back[unsafe_offset=place] = run
                last = row
            total[unsafe_offset=0] = run + 1

        each_line[target=target](work, 1, n, ctx)


@register("tmb_run_starts")
struct RunStarts:
    """Where each run starts, and its length; `numbers` only tells how many there are."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        starts: OutputTensor[dtype=DType.int64, rank=1, ...],
        lengths: OutputTensor[dtype=DType.int64, rank=1, ...],
        runs: InputTensor[dtype=DType.int64, rank=1, ...],
        numbers: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        var n = runs.dim_size[0]()
        var count = numbers.dim_size[0]()
        var run_of = untracked(runs.unsafe_ptr())
        var first = untracked(starts.unsafe_ptr())
        var sizes = untracked(lengths.unsafe_ptr())

        @always_inline
        def work(line: Int) {var run_of, var first, var sizes, var n, var count}:
            var start = 0
            for i in range(1, n + 1):
                if i < n and run_of[unsafe_offset=i] == run_of[unsafe_offset=start]:
                    continue
                var run = Int(run_of[unsafe_offset=start])
                if run < count:
                    first[unsafe_offset=run] = Int64(start)
                    sizes[unsafe_offset=run] = Int64(i - start)
                start = i

        each_line[target=target](work, 1, n, ctx)
