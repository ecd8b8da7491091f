"""Matrix products of groups of rows, each group with a matrix of its own."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv

from ..core.memory import untracked
from ..core.rounding import to_memory
from ..core.team import sync_parallelize
from .blas import ROWS, Gemm, sum_type, tasks_for
from .panels import COLUMNS


@register("tmb_grouped_matmul")
struct GroupedMatmul:
    """`output[i] = a[i] op(b[g])` of `[rows, inner]` and `[groups, inner,
    columns]` values, where row `i` is of group `g` if `ends[g - 1] <= i <
    ends[g]`. Rows of no group are 0."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        a: InputTensor[dtype=dtype, rank=2, ...],
        b: InputTensor[dtype=dtype, rank=3, ...],
        ends: InputTensor[dtype=DType.int64, rank=1, ...],
        routine: Int64,
        set_threads: Int64,
        transposed_b: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "on CPU only"
        var gemm = Gemm(Int(routine), Int(set_threads))
        var m = output.dim_size[0]()
        var n = output.dim_size[1]()
        var k = a.dim_size[1]()
        var groups = ends.dim_size[0]()
        var tb = transposed_b != 0
        var row_b = k if tb else n
        var ap = untracked(a.unsafe_ptr())
        var bp = untracked(b.unsafe_ptr())
        var ep = untracked(ends.unsafe_ptr())
        var cp = untracked(output.unsafe_ptr())
        var before = Int64(0)
        for g in range(groups):
            var end = ep[unsafe_offset=g]
            if end < before or end > Int64(m):
                raise Error("offsets have to grow, up to the number of rows")
            before = end

        # A stripe of columns of all groups a task: even, however long the groups are.
        var tasks = tasks_for(ceildiv(n, 16), m * n * max(k, 1))
        var wide = ceildiv(ceildiv(n, tasks), 16) * 16
        tasks = ceildiv(n, wide)
        comptime sum = sum_type[dtype]()
        var scratch = List[Scalar[sum]](
            unsafe_uninit_length=1 if sum == dtype else tasks * ROWS * COLUMNS
        )
        var sp = untracked(scratch.unsafe_ptr())

        def work(
            task: Int,
        ) {
            var gemm,
            var m,
            var n,
            var k,
            var groups,
            var wide,
            var tb,
            var row_b,
            var ap,
            var bp,
            var ep,
            var cp,
            var sp,
        }:
            var wider = sp.unsafe_offset(task * ROWS * COLUMNS)
            var first = task * wide
            var last = min(first + wide, n)
            var previous = gemm.begin()
            var start = 0
            for g in range(groups):
                var end = Int(ep[unsafe_offset=g])
                var right = bp.unsafe_offset(g * k * n)
                comptime if sum == dtype:
                    if end > start:
                        gemm.multiply(
                            end - start,
                            last - first,
                            k,
                            ap.unsafe_offset(start * k),
                            k,
                            False,
                            right.unsafe_offset(first * k if tb else first),
                            row_b,
                            tb,
                            cp.unsafe_offset(start * n + first),
                            n,
                        )
                    start = end
                    continue
                # Added up in a wider type, and rounded once.
                for i in range(start, end, ROWS):
                    for j in range(first, last, COLUMNS):
                        var high = min(ROWS, end - i)
                        var columns = min(COLUMNS, last - j)
                        gemm.multiply(
                            high,
                            columns,
                            k,
                            ap.unsafe_offset(i * k),
                            k,
                            False,
                            right.unsafe_offset(j * k if tb else j),
                            row_b,
                            tb,
                            wider,
                            columns,
                        )
                        for h in range(high):
                            for c in range(columns):
                                cp[unsafe_offset = (i + h) * n + j + c] = to_memory[dtype](
                                    wider[unsafe_offset = h * columns + c]
                                )
                start = end
            gemm.end(previous)
            for i in range(start, m):
                for j in range(first, last):
                    cp[unsafe_offset = i * n + j] = 0

        sync_parallelize(work, tasks)
        _ = scratch^
