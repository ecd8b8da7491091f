"""Lookup of rows by index, indices that are in range, and those of what is not zero."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_ranges, sync_parallelize, task_count

comptime GRAIN = 32768
comptime PART = 65536


@register("tmb_lookup")
struct Lookup:
    """Row `index[i]` of `table` as row `i`; an index out of range raises.

    The table and the result may have any distance of rows."""

    @staticmethod
    def execute[
        dtype: DType, index_dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        table: InputTensor[dtype=dtype, rank=2, ...],
        index: InputTensor[dtype=index_dtype, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own gather"
        var rows = table.dim_size[0]()
        var columns = table.dim_size[1]()
        var row_t = table.stride_length[0]()
        var row_o = output.stride_length[0]()
        var count = index.dim_size[0]()
        var tp = untracked(table.unsafe_ptr())
        var ip = untracked(index.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        for i in range(count):
            var at = Int(ip[unsafe_offset=i])
            if at < 0 or at >= rows:
                raise Error(
                    "index ", at, " is out of bounds for a dimension of size ", rows
                )
        var tasks = task_count(count, count * columns, GRAIN)

        def work(lower: Int, upper: Int) {
            var tp, var ip, var op, var columns, var row_t, var row_o
        }:
            comptime width = simd_width_of[dtype]()
            for i in range(lower, upper):
                var source = tp.unsafe_offset(Int(ip[unsafe_offset=i]) * row_t)
                var to = op.unsafe_offset(i * row_o)
                var j = 0
                while j + width <= columns:
                    to.unsafe_store[width=width](j, source.unsafe_load[width=width](j))
                    j += width
                while j < columns:
                    to[unsafe_offset=j] = source[unsafe_offset=j]
                    j += 1

        in_ranges(work, count, tasks)


@register("tmb_checked")
struct Checked:
    """Indices into a dimension of `size` as they are, if they are in range;
    negative ones count from its end if `wrap`. Any other raises."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        index: InputTensor[dtype=dtype, rank=1, ...],
        size: Int64,
        wrap: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "a GPU cannot raise"
        var ip = untracked(index.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var end = Int(size)
        var start = -end if wrap != 0 else 0
        for i in range(index.dim_size[0]()):
            var at = Int(ip[unsafe_offset=i])
            if at < start or at >= end:
                raise Error("index ", at, " is out of bounds for a dimension of size ", end)
            op[unsafe_offset=i] = Scalar[dtype](at + end if at < 0 else at)


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
        var counts = _counts(untracked(flags.unsafe_ptr()), n)
        var total = 0
        for part in range(len(counts)):
            total += counts[part]
        output.unsafe_ptr()[unsafe_offset=0] = Int64(total)


def _counts(flags: Address[DType.bool], n: Int) -> List[Int]:
    """How many flags are set in each part of `PART`."""
    comptime width = 32
    var parts = ceildiv(n, PART)
    var counts = List[Int](length=parts, fill=0)
    var cp = untracked(counts.unsafe_ptr())
    var bytes = flags.unsafe_bitcast[UInt8]()

    def work(part: Int) {var bytes, var cp, var n}:
        var at = part * PART
        var end = min(n, at + PART)
        var total = 0
        while at + width <= end:
            total += Int(bytes.unsafe_load[width=width](at).reduce_add())
            at += width
        while at < end:
            total += Int(bytes[unsafe_offset=at])
            at += 1
        cp[unsafe_offset=part] = total

    sync_parallelize(work, parts)
    return counts^


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
        var counts = _counts(fp, n)
        var parts = len(counts)
        var before = List[Int](length=parts + 1, fill=0)
        for part in range(parts):
            before[part + 1] = before[part] + counts[part]
        comptime if exact:
            if before[parts] != k:
                raise Error("the mask picks ", before[parts], " elements where ", k, " are needed")
        var bp = untracked(before.unsafe_ptr())

        def work(part: Int) {var fp, var op, var bp, var shape, var n, var k}:
            var to = bp[unsafe_offset=part]
            for at in range(part * PART, min(n, (part + 1) * PART)):
                if not fp[unsafe_offset=at]:
                    continue
                if to >= k:
                    return
                var rest = at
                comptime for back in range(rank):
                    comptime i = rank - 1 - back
                    comptime if i == 0:
                        op[unsafe_offset=to * rank] = Int64(rest)
                    else:
                        op[unsafe_offset=to * rank + i] = Int64(rest % shape[i])
                        rest //= shape[i]
                to += 1

        sync_parallelize(work, parts)
        for row in range(before[parts], k):
            for i in range(rank):
                op[unsafe_offset=row * rank + i] = fill
        _ = before^
