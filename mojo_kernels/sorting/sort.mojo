"""Stable sort along the last axis. NaN counts as the greatest."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.lines import each_line
from ..core.memory import untracked
from .radix import before, radix_sort
from .selection import *
from .unique import *

comptime BLOCK = 16
comptime LONG = 192  # From here on counting digits is faster than comparing.


@register("tmb_sort")
struct Sort:
    """Values in order and where they stood. The last two outputs are scratch."""

    @staticmethod
    def execute[
        dtype: DType, //, descending: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=2, ...],
        indices: OutputTensor[dtype=DType.int64, rank=2, ...],
        spare_values: OutputTensor[dtype=dtype, rank=2, ...],
        spare_indices: OutputTensor[dtype=DType.int64, rank=2, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        if x.size() == 0:
            return
        var n = x.dim_size[1]()
        var source = untracked(x.unsafe_ptr())
        var values_a = untracked(values.unsafe_ptr())
        var values_b = untracked(spare_values.unsafe_ptr())
        var indices_a = untracked(indices.unsafe_ptr())
        var indices_b = untracked(spare_indices.unsafe_ptr())

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
            comptime if target == "cpu":
                if n >= LONG and n < 1 << 32:
                    radix_sort[descending](
                        source.unsafe_offset(base), n, v, i, other_v, other_i
                    )
                    return
            # Blocks by insertion, then merges of ever longer runs.
            for at in range(n):
                var value = source[unsafe_offset=base + at]
                var to = at
                var first = at - at % BLOCK
                while to > first and before[descending](
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
                            or before[descending](
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


@register("tmb_mode")
struct Mode:
    """The least of the most frequent values of each sorted line, and the last place where it
    stood."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=2, ...],
        indices: OutputTensor[dtype=DType.int64, rank=2, ...],
        ordered: InputTensor[dtype=dtype, rank=2, ...],
        places: InputTensor[dtype=DType.int64, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        if values.size() == 0 or ordered.size() == 0:
            return
        var n = ordered.dim_size[1]()
        var source = untracked(ordered.unsafe_ptr())
        var from_ = untracked(places.unsafe_ptr())
        var result = untracked(values.unsafe_ptr())
        var at_result = untracked(indices.unsafe_ptr())

        @always_inline
        def work(
            line: Int,
        ) {var source, var from_, var result, var at_result, var n}:
            var v = source.unsafe_offset(line * n)
            var most = 0
            var best = 0
            var run = 0
            for at in range(n):
                run += 1
                # A NaN equals nothing, itself included.
                if at + 1 == n or v[unsafe_offset=at] != v[unsafe_offset=at + 1]:
                    if run > most:
                        most = run
                        best = at
                    run = 0
            result[unsafe_offset=line] = v[unsafe_offset=best]
            at_result[unsafe_offset=line] = from_[unsafe_offset=line * n + best]

        each_line[target=target](work, ordered.size() // n, n, ctx)
