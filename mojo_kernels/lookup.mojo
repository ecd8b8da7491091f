"""Lookup of rows by index, and indices that are in range."""

from extensibility import InputTensor, OutputTensor, register
from max.algorithm import sync_parallelize
from max.gpu.host import DeviceContext
from max.runtime.asyncrt import parallelism_level
from std.math import ceildiv
from std.sys import simd_width_of

comptime GRAIN = 32768


@register("tmb_lookup")
struct Lookup:
    """Row `index[i]` of `table` as row `i`; an index out of range raises."""

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
        var count = index.dim_size[0]()
        var tp = table.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var ip = index.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var op = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        for i in range(count):
            var at = Int(ip[unsafe_offset=i])
            if at < 0 or at >= rows:
                raise Error(
                    "index ", at, " is out of bounds for a dimension of size ", rows
                )
        var tasks = min(parallelism_level(None), count)
        tasks = max(1, min(tasks, count * columns // GRAIN))
        var chunk = ceildiv(count, tasks)

        def work(task: Int) {var tp, var ip, var op, var columns, var count, var chunk}:
            comptime width = simd_width_of[dtype]()
            for i in range(task * chunk, min(count, (task + 1) * chunk)):
                var source = tp.unsafe_offset(Int(ip[unsafe_offset=i]) * columns)
                var to = op.unsafe_offset(i * columns)
                var j = 0
                while j + width <= columns:
                    to.unsafe_store[width=width](j, source.unsafe_load[width=width](j))
                    j += width
                while j < columns:
                    to[unsafe_offset=j] = source[unsafe_offset=j]
                    j += 1

        sync_parallelize(work, tasks)


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
        var ip = index.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var op = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var end = Int(size)
        var start = -end if wrap != 0 else 0
        for i in range(index.dim_size[0]()):
            var at = Int(ip[unsafe_offset=i])
            if at < start or at >= end:
                raise Error("index ", at, " is out of bounds for a dimension of size ", end)
            op[unsafe_offset=i] = Scalar[dtype](at + end if at < 0 else at)
