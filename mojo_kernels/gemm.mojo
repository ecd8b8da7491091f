"""Matrix products: each thread computes a part of the result."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of

from .blas import ROWS, Gemm, activated, product_cost, sum_type, tasks_for
from .operations import to_memory
from .panels import COLUMNS, Address
from .team import sync_parallelize


@always_inline
def _finish[
    dtype: DType, sum: DType, //, activation: StaticString
](
    to: Address[dtype],
    line: Address[sum],
    bias: Address[dtype],
    biased: Bool,
    columns: Int,
):
    """`to = activation(line + bias)`, for a part of a row."""
    comptime width = simd_width_of[sum]()
    var j = 0
    while j + width <= columns:
        var v = line.unsafe_load[width=width](j)
        if biased:
            v += bias.unsafe_load[width=width](j).cast[sum]()
        to.unsafe_store[width=width](j, to_memory[dtype](activated[activation](v)))
        j += width
    while j < columns:
        var v = line.unsafe_load[width=1](j)
        if biased:
            v += bias.unsafe_load[width=1](j).cast[sum]()
        to.unsafe_store[width=1](j, to_memory[dtype](activated[activation](v)))
        j += 1


@register("tmb_matmul")
struct Matmul:
    """`activation(op(a) op(b) + bias)` of `[batch, rows, columns]` values; a
    batch of 1 serves all. An empty bias is none.

    The three may have any distances of rows and of matrices."""

    @staticmethod
    def execute[
        dtype: DType, //, activation: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        b: InputTensor[dtype=dtype, rank=3, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        routine: Int64,
        set_threads: Int64,
        transposed_a: Int64,
        transposed_b: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own product"
        var gemm = Gemm(Int(routine), Int(set_threads))
        var batch = output.dim_size[0]()
        var m = output.dim_size[1]()
        var n = output.dim_size[2]()
        if batch * m * n == 0:
            return
        var ta = transposed_a != 0
        var tb = transposed_b != 0
        var k = a.dim_size[1]() if ta else a.dim_size[2]()
        var row_a = a.stride_length[1]()
        var row_b = b.stride_length[1]()
        var row_c = output.stride_length[1]()
        var step_a = 0 if a.dim_size[0]() == 1 else a.stride_length[0]()
        var step_b = 0 if b.dim_size[0]() == 1 else b.stride_length[0]()
        var step_c = output.stride_length[0]()
        var ap = a.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var bp = b.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var cp = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var addend = bias.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var biased = bias.dim_size[0]() != 0

        # A grid of parts of each product, as square as the tasks allow.
        var tasks = tasks_for(batch * m * n, product_cost(batch, m, n, k))
        var parts = ceildiv(tasks, batch)
        var down = 1
        for i in range(1, parts + 1):
            var other = parts // i
            if i * other == parts and i <= m and other <= n:
                if m // i + n // other < m // down + n // (parts // down):
                    down = i
        var across = max(1, min(parts // down, n))
        var high = ceildiv(m, down)
        # Whole cache lines a part, where there are enough of them.
        var wide = ceildiv(ceildiv(n, across), 16) * 16
        across = ceildiv(n, wide)
        var units = batch * down * across
        tasks = min(tasks, units)
        var chunk = ceildiv(units, tasks)
        comptime sum = sum_type[dtype]()
        var scratch = List[Scalar[sum]](
            unsafe_uninit_length=1 if sum == dtype else tasks * ROWS * COLUMNS
        )
        var sp = scratch.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()

        def work(
            task: Int,
        ) {
            var gemm,
            var units,
            var chunk,
            var m,
            var n,
            var k,
            var down,
            var across,
            var high,
            var wide,
            var ta,
            var tb,
            var row_a,
            var row_b,
            var row_c,
            var step_a,
            var step_b,
            var step_c,
            var ap,
            var bp,
            var cp,
            var addend,
            var biased,
            var sp,
        }:
            var wider = sp.unsafe_offset(task * ROWS * COLUMNS)
            var previous = gemm.begin()
            for unit in range(task * chunk, min(units, (task + 1) * chunk)):
                var item = unit // (down * across)
                var row = unit // across % down * high
                var column = unit % across * wide
                var rows = min(high, m - row)
                var columns = min(wide, n - column)
                if rows <= 0 or columns <= 0:
                    continue
                var left = ap.unsafe_offset(item * step_a + (row if ta else row * row_a))
                var right = bp.unsafe_offset(
                    item * step_b + (column * row_b if tb else column)
                )
                comptime if sum == dtype:
                    var c = cp.unsafe_offset(item * step_c + row * row_c + column)
                    gemm.multiply(
                        rows, columns, k, left, row_a, ta, right, row_b, tb, c, row_c
                    )
                    comptime if activation == "none":
                        if not biased:
                            continue
                    for i in range(rows):
                        var line = c.unsafe_offset(i * row_c)
                        _finish[activation](
                            line, line, addend.unsafe_offset(column), biased, columns
                        )
                    continue
                # Added up in a wider type, and rounded once.
                for i in range(0, rows, ROWS):
                    for j in range(0, columns, COLUMNS):
                        var high_part = min(ROWS, rows - i)
                        var wide_part = min(COLUMNS, columns - j)
                        gemm.multiply(
                            high_part,
                            wide_part,
                            k,
                            left.unsafe_offset(i if ta else i * row_a),
                            row_a,
                            ta,
                            right.unsafe_offset(j * row_b if tb else j),
                            row_b,
                            tb,
                            wider,
                            wide_part,
                        )
                        for h in range(high_part):
                            _finish[activation](
                                cp.unsafe_offset(
                                    item * step_c + (row + i + h) * row_c + column + j
                                ),
                                wider.unsafe_offset(h * wide_part),
                                addend.unsafe_offset(column + j),
                                biased,
                                wide_part,
                            )
            gemm.end(previous)

        sync_parallelize(work, tasks)
        _ = scratch^
