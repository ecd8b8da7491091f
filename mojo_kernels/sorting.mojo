"""Stable sort and selection along the last axis. NaN counts as the greatest."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.utils.numerics import isnan

from .lines import each_line

comptime BLOCK = 16


@always_inline
def _before[
    dtype: DType, //, descending: Bool
](a: Scalar[dtype], b: Scalar[dtype]) -> Bool:
    """Whether `a` has to stand before `b`."""
    comptime if descending:
        comptime if dtype.is_floating_point():
            if isnan(a) or isnan(b):
                return isnan(a) and not isnan(b)
        return a > b
    else:
        comptime if dtype.is_floating_point():
            if isnan(a) or isnan(b):
                return isnan(b) and not isnan(a)
        return a < b


@register("tmb_sort")
struct Sort:
    """Values in order and where they stood. The last two outputs are scratch."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, descending: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=rank, ...],
        indices: OutputTensor[dtype=DType.int64, rank=rank, ...],
        spare_values: OutputTensor[dtype=dtype, rank=rank, ...],
        spare_indices: OutputTensor[dtype=DType.int64, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        if x.size() == 0:
            return
        var n = x.dim_size[rank - 1]()
        var source = x.unsafe_ptr()
        var values_a = values.unsafe_ptr()
        var values_b = spare_values.unsafe_ptr()
        var indices_a = indices.unsafe_ptr()
        var indices_b = spare_indices.unsafe_ptr()

        @always_inline
        def work(
            line: Int,
        ) {
            var source,
            var values_a,
            var values_b,
            var indices_a,
            var indices_b,
            var n,
        }:
            var base = line * n
            var v = values_a.unsafe_offset(base)
            var i = indices_a.unsafe_offset(base)
            var other_v = values_b.unsafe_offset(base)
            var other_i = indices_b.unsafe_offset(base)
            # Blocks by insertion, then merges of ever longer runs.
            for at in range(n):
                var value = source[unsafe_offset=base + at]
                var to = at
                var first = at - at % BLOCK
                while to > first and _before[descending](
                    value, v[unsafe_offset=to - 1]
                ):
                    v[unsafe_offset=to] = v[unsafe_offset=to - 1]
                    i[unsafe_offset=to] = i[unsafe_offset=to - 1]
                    to -= 1
                v[unsafe_offset=to] = value
                i[unsafe_offset=to] = Int64(at)
            var run = BLOCK
            var swapped = False
            while run < n:
                var start = 0
                while start < n:
                    var middle = min(start + run, n)
                    var end = min(start + 2 * run, n)
                    var left = start
                    var right = middle
                    for to in range(start, end):
                        var take_right = right < end and (
                            left >= middle
                            or _before[descending](
                                v[unsafe_offset=right], v[unsafe_offset=left]
                            )
                        )
                        var at = right if take_right else left
                        other_v[unsafe_offset=to] = v[unsafe_offset=at]
                        other_i[unsafe_offset=to] = i[unsafe_offset=at]
                        if take_right:
                            right += 1
                        else:
                            left += 1
                    start = end
                swap(v, other_v)
                swap(i, other_i)
                swapped = not swapped
                run *= 2
            if swapped:
                for at in range(n):
                    other_v[unsafe_offset=at] = v[unsafe_offset=at]
                    other_i[unsafe_offset=at] = i[unsafe_offset=at]

        # About log2(n) passes.
        each_line[target=target](work, x.size() // n, n * 16, ctx)


@register("tmb_topk")
struct TopK:
    """The first `k` values of the sorted line and where they stood, for a
    small `k`: a sorted list that most values never enter."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, descending: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=rank, ...],
        indices: OutputTensor[dtype=DType.int64, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        if values.size() == 0:
            return
        var n = x.dim_size[rank - 1]()
        var k = values.dim_size[rank - 1]()
        var source = x.unsafe_ptr()
        var best = values.unsafe_ptr()
        var positions = indices.unsafe_ptr()

        @always_inline
        def work(
            line: Int,
        ) {var source, var best, var positions, var n, var k}:
            var from_ = source.unsafe_offset(line * n)
            var v = best.unsafe_offset(line * k)
            var i = positions.unsafe_offset(line * k)
            for at in range(n):
                var value = from_[unsafe_offset=at]
                var to = min(at, k)
                if to == k:
                    if not _before[descending](value, v[unsafe_offset=k - 1]):
                        continue
                    to = k - 1
                while to > 0 and _before[descending](
                    value, v[unsafe_offset=to - 1]
                ):
                    v[unsafe_offset=to] = v[unsafe_offset=to - 1]
                    i[unsafe_offset=to] = i[unsafe_offset=to - 1]
                    to -= 1
                v[unsafe_offset=to] = value
                i[unsafe_offset=to] = Int64(at)

        each_line[target=target](work, x.size() // n, n, ctx)
