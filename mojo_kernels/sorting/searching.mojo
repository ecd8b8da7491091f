"""Places in sorted boundaries, counts by value, and repetition by counts."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.sys import simd_width_of
from std.utils.numerics import isfinite

from ..core.indices import check_range
from ..core.lines import each_line
from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges

comptime PART = 65536


@register("tmb_searchsorted")
struct SearchSorted:
    """How many of a row of boundaries stand before each value: those below it, or if `right`
    those up to it. NaN stands behind all.

    `boundaries` has one row for all or one for each row of `values`; `order`, of the same
    shape or empty, says where they stand in order."""

    @staticmethod
    def execute[
        dtype: DType, out_type: DType, //, right: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=out_type, rank=2, ...],
        boundaries: InputTensor[dtype=dtype, rank=2, ...],
        values: InputTensor[dtype=dtype, rank=2, ...],
        order: InputTensor[dtype=DType.int64, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        var count = values.dim_size[1]()
        var n = boundaries.dim_size[1]()
        var step = 0 if boundaries.dim_size[0]() == 1 else n
        var sorts = order.size() != 0
        var bp = untracked(boundaries.unsafe_ptr())
        var vp = untracked(values.unsafe_ptr())
        var sp = untracked(order.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        comptime if target == "cpu":
            if sorts:
                check_range(sp, order.size(), 0, n)

        @always_inline
        def work(
            at: Int,
        ) {var bp, var vp, var sp, var op, var count, var n, var step, var sorts}:
            var row = bp.unsafe_offset(at // count * step)
            var places = sp.unsafe_offset(at // count * step if sorts else 0)
            var value = vp[unsafe_offset=at]
            var low = 0
            var high = n
            while low < high:
                var middle = (low + high) // 2
                var place = middle
                if sorts:
                    place = max(0, min(n - 1, Int(places[unsafe_offset=middle])))
                var boundary = row[unsafe_offset=place]
                var found: Bool
                comptime if right:
                    found = boundary > value
                else:
                    found = boundary >= value
                if found:
                    high = middle
                else:
                    low = middle + 1
            op[unsafe_offset=at] = Scalar[out_type](low)

        each_line[target=target](work, values.size(), 32, ctx)


@always_inline
def _bin_of[
    dtype: DType, //, how: StaticString
](value: Scalar[dtype], edges: Address[dtype], count: Int) -> Int:
    """The bin of a value among `count` edges, -1 outside: by search, by the distance from the
    first edge ("linear"), or by that and a look at the edges around ("uniform")."""
    comptime assert how == "search" or how == "linear" or how == "uniform", "unknown way"
    var first = edges[unsafe_offset=0]
    var last = edges[unsafe_offset = 1 if how == "linear" else count - 1]
    if not (value >= first and value <= last):
        return -1
    var low = 0
    var high = count
    comptime if how != "search":
        var place = Int((value - first) * Scalar[dtype](count - 1) / (last - first))
        comptime if how == "linear":
            return max(0, min(place, count - 2))
        low = max(0, min(place - 1, count))
        high = min(place + 2, count)
    while low < high:
        var middle = (low + high) // 2
        if edges[unsafe_offset=middle] > value:
            high = middle
        else:
            low = middle + 1
    return max(0, min(low - 1, count - 2))


@register("tmb_histogram")
struct Histogram:
    """How many of the points `x[i, :]` fall into each bin, or the sum of their weights.

    `edges` holds the edges of all dimensions, `counts[d]` of them for dimension d; with `how`
    "linear" only the first and the last one, and `counts` still tells how many are meant.
    Weights are one a point or none."""

    @staticmethod
    def execute[
        dtype: DType, //, how: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        edges: InputTensor[dtype=dtype, rank=1, ...],
        counts: InputTensor[dtype=DType.int64, rank=1, ...],
        weights: InputTensor[dtype=dtype, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        comptime assert target == "cpu", "it needs memory for each part"
        var n = x.dim_size[0]()
        var dims = x.dim_size[1]()
        var bins = output.dim_size[0]()
        var weighs = weights.size() != 0
        var xp = untracked(x.unsafe_ptr())
        var ep = untracked(edges.unsafe_ptr())
        var cp = untracked(counts.unsafe_ptr())
        var wp = untracked(weights.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        for i in range(edges.size()):
            if not isfinite(ep[unsafe_offset=i]):
                raise Error("the range of a histogram has to be finite")
        # The parts depend on the size alone, so that sums do not depend on the threads.
        var parts = max(1, min(16, n // max(PART, 4 * bins)))
        var sums = List[Scalar[dtype]](length=parts * bins, fill=0)
        var sp = untracked(sums.unsafe_ptr())

        def work(part: Int, lower: Int, upper: Int) {
            var xp, var ep, var cp, var wp, var sp, var dims, var bins, var weighs
        }:
            var mine = sp.unsafe_offset(part * bins)
            for i in range(lower, upper):
                var place = 0
                var from_ = ep
                for d in range(dims):
                    var count = Int(cp[unsafe_offset=d])
                    var bin = _bin_of[how](xp[unsafe_offset=i * dims + d], from_, count)
                    if bin < 0:
                        place = -1
                        break
                    place = place * (count - 1) + bin
                    from_ = from_.unsafe_offset(count)
                if place >= 0:
                    var weight = Scalar[dtype](1)
                    if weighs:
                        weight = wp[unsafe_offset=i]
                    mine[unsafe_offset=place] += weight

        in_numbered_ranges(work, n, parts)
        for bin in range(bins):
            var total = Scalar[dtype](0)
            for part in range(parts):
                total += sums[part * bins + bin]
            op[unsafe_offset=bin] = total
        _ = sums^


@register("tmb_bincount_size")
struct BincountSize:
    """One more than the greatest number, at least `least`. A negative number raises."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=1, ...],
        least: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "a GPU cannot raise"
        var xp = untracked(x.unsafe_ptr())
        comptime width = simd_width_of[dtype]()
        var n = x.dim_size[0]()
        var highs = SIMD[dtype, width](0)
        var lows = SIMD[dtype, width](0)
        var i = 0
        while i + width <= n:
            var values = xp.unsafe_load[width=width](i)
            highs = max(highs, values)
            lows = min(lows, values)
            i += width
        var greatest = highs.reduce_max()
        var smallest = lows.reduce_min()
        while i < n:
            greatest = max(greatest, xp[unsafe_offset=i])
            smallest = min(smallest, xp[unsafe_offset=i])
            i += 1
        if smallest < 0:
            raise Error("bincount takes numbers that are not negative, not ", smallest)
        var size = Int64(greatest) + 1 if x.dim_size[0]() > 0 else Int64(0)
        output.unsafe_ptr()[unsafe_offset=0] = max(size, least)


@register("tmb_bincount")
struct Bincount:
    """How often each number occurs, or the sum of its weights; `numbers` only tells how many
    there are."""

    @staticmethod
    def execute[
        dtype: DType, out_type: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=out_type, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=1, ...],
        weights: InputTensor[dtype=out_type, rank=1, ...],
        numbers: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "a GPU cannot raise"
        var bins = output.dim_size[0]()
        var xp = untracked(x.unsafe_ptr())
        var wp = untracked(weights.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        for bin in range(bins):
            op[unsafe_offset=bin] = 0
        var weighs = weights.size() != 0
        for i in range(x.dim_size[0]()):
            var bin = Int(xp[unsafe_offset=i])
            if bin < 0 or bin >= bins:
                continue
            if weighs:
                op[unsafe_offset=bin] += wp[unsafe_offset=i]
            else:
                op[unsafe_offset=bin] += 1


@register("tmb_total")
struct Total:
    """The sum of numbers, none of which may be negative."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "a GPU cannot raise"
        var xp = untracked(x.unsafe_ptr())
        var total = Int64(0)
        for i in range(x.dim_size[0]()):
            if xp[unsafe_offset=i] < 0:
                raise Error("repeats can not be negative")
            total += Int64(xp[unsafe_offset=i])
        output.unsafe_ptr()[unsafe_offset=0] = total


@register("tmb_repeated")
struct Repeated:
    """Each position as often as `repeats` says there, as many as the output has."""

    @staticmethod
    def execute[
        dtype: DType, out_type: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=out_type, rank=1, ...],
        repeats: InputTensor[dtype=dtype, rank=1, ...],
        numbers: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "a GPU cannot raise"
        var rp = untracked(repeats.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var size = output.dim_size[0]()
        var at = 0
        for i in range(repeats.dim_size[0]()):
            var times = Int(rp[unsafe_offset=i])
            if times < 0:
                raise Error("repeats can not be negative")
            if at + times > size:
                raise Error("allocated size does not match required size")
            for _ in range(times):
                op[unsafe_offset=at] = Scalar[out_type](i)
                at += 1
        if at != size:
            raise Error("allocated size does not match required size")
