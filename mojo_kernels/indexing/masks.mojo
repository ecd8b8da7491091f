"""What flags pick: how many, their places, and the rows of a tensor at these."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.memory import unsafe_memcpy
from std.utils.index import IndexList

from ..core.counts import counts_before
from ..core.memory import Address, untracked
from ..core.team import parallelism_level, sync_parallelize

# Flags of a part of the work, and elements that are worth one.
comptime PART = 65536
comptime GRAIN = 32768
# Flags that are looked at together.
comptime WIDTH = 32


@register("tmb_count_true")
struct CountTrue:
    """How many of the flags are set."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=1, ...],
        flags: InputTensor[dtype=DType.bool, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "it counts in parts"
        var n = flags.dim_size[0]()
        var before = _before(untracked(flags.unsafe_ptr()), n, PART)
        output.unsafe_ptr()[unsafe_offset=0] = Int64(before[len(before) - 1])


def _before(flags: Address[DType.bool], n: Int, part: Int) -> List[Int]:
    """How many flags are set before each part of so many, and at last in all."""
    var bytes = flags.unsafe_bitcast[UInt8]()

    def count(lower: Int, upper: Int) {var bytes} -> Int:
        var at = lower
        var total = 0
        while at + WIDTH <= upper:
            total += Int(bytes.unsafe_load[width=WIDTH](at).reduce_add())
            at += WIDTH
        while at < upper:
            total += Int(bytes[unsafe_offset=at])
            at += 1
        return total

    return counts_before(count, n, part)


@always_inline
def _none_set(flags: Address[DType.bool], at: Int) -> Bool:
    """Whether none of the flags from there on is, of as many as are looked at together."""
    var bytes = flags.unsafe_bitcast[UInt8]()
    return bytes.unsafe_load[width=WIDTH](at).reduce_max() == 0


def _refuse(found: Int, needed: Int) raises:
    raise Error("the mask picks ", found, " elements where ", needed, " are needed")


@register("tmb_true_at")
struct TrueAt:
    """The indices `[k, rank]` of the flags that are set, in order, or of the first k of them;
    rows behind the last one are `fill`. `exact`: k flags must be set. `numbers`, of size k, only
    tells how many rows there are."""

    @staticmethod
    def execute[
        rank: Int, //, exact: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=2, ...],
        flags: InputTensor[dtype=DType.bool, rank=rank, ...],
        numbers: InputTensor[dtype=DType.int64, rank=1, ...],
        fill: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "it counts in parts"
        var n = flags.size()
        var k = output.dim_size[0]()
        var shape = flags.shape()
        var fp = untracked(flags.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var before = _before(fp, n, PART)
        var parts = len(before) - 1
        comptime if exact:
            if before[parts] != k:
                _refuse(before[parts], k)
        var bp = untracked(before.unsafe_ptr())

        def work(part: Int) {var fp, var op, var bp, var shape, var n, var k}:
            comptime last = rank - 1
            var to = bp[unsafe_offset=part]
            var full = min(bp[unsafe_offset=part + 1], k)
            var at = part * PART
            while to < full:
                # A line along the last dim, where the other indices stay the same.
                var line = at // shape[last]
                var start = line * shape[last]
                var end = start + shape[last]
                var indices = IndexList[rank]()
                comptime for back in range(1, rank):
                    comptime i = last - back
                    indices[i] = line % shape[i]
                    line //= shape[i]
                while at < end and to < full:
                    if at + WIDTH <= min(end, n) and _none_set(fp, at):
                        at += WIDTH
                        continue
                    var stop = min(end, at + WIDTH)
                    # Always written, and kept if the flag is set: nothing to guess for the
                    # processor.
                    while at < stop and to < full:
                        comptime for i in range(last):
                            op[unsafe_offset=to * rank + i] = Int64(indices[i])
                        op[unsafe_offset=to * rank + last] = Int64(at - start)
                        to += Int(fp[unsafe_offset=at])
                        at += 1

        sync_parallelize(work, parts)
        for row in range(before[parts], k):
            for i in range(rank):
                op[unsafe_offset=row * rank + i] = fill
        _ = before^


@register("tmb_take_true")
struct TakeTrue:
    """The slices `x[:, i]` of `[outer, n, inner]` whose flag is set, in order: `[outer, k, inner]`.
    k flags must be set. `numbers`, of size k, only tells how many there are."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        flags: InputTensor[dtype=DType.bool, rank=1, ...],
        numbers: InputTensor[dtype=DType.int64, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "it counts in parts"
        var outer = x.dim_size[0]()
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        var k = output.dim_size[1]()
        var fp = untracked(flags.unsafe_ptr())
        var xp = untracked(x.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var wanted = min(outer * n * inner // GRAIN, 4 * parallelism_level(None))
        var part = min(PART, ceildiv(n, max(wanted, 1)))
        var before = _before(fp, n, max(part, 1))
        var parts = len(before) - 1
        if before[parts] != k:
            _refuse(before[parts], k)
        var bp = untracked(before.unsafe_ptr())

        def work(number: Int) {
            var fp, var xp, var op, var bp, var part, var outer, var n, var inner, var k
        }:
            var first = bp[unsafe_offset=number]
            var full = bp[unsafe_offset=number + 1]
            for image in range(outer):
                var source = xp.unsafe_offset(image * n * inner)
                var result = op.unsafe_offset(image * k * inner)
                var at = number * part
                var end = min(n, at + part)
                var to = first
                while to < full:
                    if at + WIDTH <= end and _none_set(fp, at):
                        at += WIDTH
                        continue
                    var stop = min(end, at + WIDTH)
                    if inner == 1:
                        while at < stop and to < full:
                            result[unsafe_offset=to] = source[unsafe_offset=at]
                            to += Int(fp[unsafe_offset=at])
                            at += 1
                        continue
                    while at < stop:
                        if fp[unsafe_offset=at]:
                            unsafe_memcpy(
                                dest=result.unsafe_offset(to * inner),
                                src=source.unsafe_offset(at * inner),
                                count=inner,
                            )
                            to += 1
                        at += 1

        sync_parallelize(work, parts)
        _ = before^
