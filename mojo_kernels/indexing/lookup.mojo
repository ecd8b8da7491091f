"""Lookup of rows by index, and indices that are in range."""

from extensibility import InputTensor, OutputTensor, register
from extensibility.managed_tensor_slice import _MutableInputTensor
from max.gpu.host import DeviceContext
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_ranges, task_count

comptime GRAIN = 32768


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


@register("tmb_assert")
struct Assert:
    """Raises an error of the characters of `text` unless `flag` is true. Called in place, so that it
    stays although nothing uses a result."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        kept: _MutableInputTensor[dtype=DType.int32, rank=1, ...],
        flag: InputTensor[dtype=DType.bool, rank=1, ...],
        text: InputTensor[dtype=DType.int32, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "only the CPU raises"
        if untracked(flag.unsafe_ptr())[]:
            return
        var characters = untracked(text.unsafe_ptr())
        var said = String()
        for i in range(text.dim_size[0]()):
            said += chr(Int(characters[unsafe_offset=i]))
        raise Error(said)
