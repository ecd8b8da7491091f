"""Matrix products: each thread computes a part of the result."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.sys import size_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges
from .activations import NONE
from .blas import ROWS, Gemm, sum_type
from .finish import GAP, finish_line
from .grids import Grid
from .panels import COLUMNS


# Bytes of a page.
comptime PAGE = 4096


@register("tmb_matmul")
struct Matmul:
    """`activation(op(a) op(b) + bias)` of `[batch, rows, columns]` values; a
    batch of 1 serves all. An empty bias is none. `b` may be of a narrower type,
    whose numbers are widened on their way to the sums. With the precision `bf16`
    those of float32 may be rounded to bfloat16. `activations.mojo` has the
    numbers of activations.

    The three may have any distances of rows and of matrices."""

    @staticmethod
    def execute[
        dtype: DType,
        right_type: DType,
        //,
        target: StaticString,
        precision: StaticString = "ieee",
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        b: InputTensor[dtype=right_type, rank=3, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        routine: Int64,
        set_threads: Int64,
        transposed_a: Int64,
        transposed_b: Int64,
        activation: Int64,
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
        var ap = untracked(a.unsafe_ptr())
        var bp = untracked(b.unsafe_ptr())
        var cp = untracked(output.unsafe_ptr())
        var addend = untracked(bias.unsafe_ptr())
        var biased = bias.dim_size[0]() != 0
        var kind = Int(activation)

        var grid = Grid(batch, m, n, k)
        comptime sum = sum_type[dtype]()
        comptime rounded = precision == "bf16"
        var direct = sum == dtype and not (rounded and row_c * size_of[dtype]() % PAGE == 0)
        comptime most = ROWS * (COLUMNS + GAP)
        var scratch = List[Scalar[sum]](unsafe_uninit_length=1 if direct else grid.tasks * most)
        var sp = untracked(scratch.unsafe_ptr())

        def work(task: Int, lower: Int, upper: Int) {
            var gemm, var grid, var k, var ta, var tb, var row_a, var row_b, var row_c,
            var step_a, var step_b, var step_c, var ap, var bp, var cp, var addend, var biased,
            var kind, var sp, var direct
        }:
            var wider = sp.unsafe_offset(task * most)
            var previous = gemm.begin()
            for unit in range(lower, upper):
                var part = grid.part(unit)
                if part.is_empty():
                    continue
                var item = part.item
                var row = part.row
                var column = part.column
                var rows = part.rows
                var columns = part.columns
                var left = ap.unsafe_offset(item * step_a + (row if ta else row * row_a))
                var right = bp.unsafe_offset(
                    item * step_b + (column * row_b if tb else column)
                )
                comptime if sum == dtype:
                    if direct:
                        var c = cp.unsafe_offset(item * step_c + row * row_c + column)
                        gemm.multiply[rounded](
                            rows, columns, k, left, row_a, ta, right, row_b, tb, c, row_c
                        )
                        if kind == NONE and not biased:
                            continue
                        for i in range(rows):
                            var line = c.unsafe_offset(i * row_c)
                            finish_line(
                                line, line, addend.unsafe_offset(column), biased, kind, columns
                            )
                        continue
                # Added up in a wider type, and rounded once.
                for i in range(0, rows, ROWS):
                    for j in range(0, columns, COLUMNS):
                        var high_part = min(ROWS, rows - i)
                        var wide_part = min(COLUMNS, columns - j)
                        gemm.multiply[rounded](
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
                            wide_part + GAP,
                        )
                        for h in range(high_part):
                            finish_line(
                                cp.unsafe_offset(
                                    item * step_c + (row + i + h) * row_c + column + j
                                ),
                                wider.unsafe_offset(h * (wide_part + GAP)),
                                addend.unsafe_offset(column + j),
                                biased,
                                kind,
                                wide_part,
                            )
            gemm.end(previous)

        in_numbered_ranges(work, grid.units, grid.tasks)
        _ = scratch^
