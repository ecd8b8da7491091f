"""Matrix products whose right operand is in panels already: weights are packed once, and multiplied
at each call. A panel is `[depth, columns]`, as `panels.mojo` makes them: of each stretch of `DEPTH`
steps along the inner dimension all panels come one after the other, the last one filled up with
zeros."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, in_ranges, task_count
from .activations import NONE
from .blas import sum_type
from .finish import GAP, finish_line
from .grids import Grid
from .panels import COLUMNS, DEPTH, TALL, WIDE, Matrix, left_size, pack, pack_left, tiles

# Numbers that a task packs at least.
comptime GRAIN = 65536


@always_inline
def _panel[dtype: DType]() -> Int:
    """Columns of a panel of numbers whose products are added up in `sum_type`."""
    return WIDE * simd_width_of[sum_type[dtype]()]()


@register("tmb_pack_right")
struct PackRight:
    """The panels of a right operand `[1, k, n]`, `[1, n, k]` if it is `transposed`, whose rows lie
    at any distance."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        b: InputTensor[dtype=dtype, rank=3, ...],
        transposed: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own product"
        comptime panel = _panel[dtype]()
        var lines = Matrix(untracked(b.unsafe_ptr()), b.stride_length[1](), 1)
        var n = b.dim_size[1]()
        var k = b.dim_size[2]()
        if transposed == 0:
            lines = lines.turned()
            swap(n, k)
        var to = untracked(output.unsafe_ptr())
        var count = ceildiv(n, panel)

        def work(lower: Int, upper: Int) {var to, var lines, var n, var k, var count}:
            for p in range(0, k, DEPTH):
                var depth = min(DEPTH, k - p)
                var begin = to.unsafe_offset(p * count * panel)
                for number in range(lower, upper):
                    var j = number * panel
                    pack[panel](
                        begin.unsafe_offset(j * depth), lines.from_(j, p), min(panel, n - j), depth
                    )

        in_ranges(work, count, task_count(count, count * panel * k, GRAIN))


@register("tmb_packed_matmul")
struct PackedMatmul:
    """`activation(op(a) b + bias)` of `[batch, rows, columns]` values, `b` the panels of
    `tmb_pack_right`. An empty bias is none. Rows of `a` may lie at any distance."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        panels: InputTensor[dtype=dtype, rank=1, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        transposed_a: Int64,
        activation: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own product"
        comptime sum = sum_type[dtype]()
        comptime panel = _panel[dtype]()
        var batch = output.dim_size[0]()
        var m = output.dim_size[1]()
        var n = output.dim_size[2]()
        var ta = transposed_a != 0
        var k = a.dim_size[1]() if ta else a.dim_size[2]()
        if batch * m * n == 0:
            return
        var row_a = a.stride_length[1]()
        var step_a = 0 if a.dim_size[0]() == 1 else a.stride_length[0]()
        var row_c = output.stride_length[1]()
        var step_c = output.stride_length[0]()
        var ap = untracked(a.unsafe_ptr())
        var bp = untracked(panels.unsafe_ptr())
        var cp = untracked(output.unsafe_ptr())
        var addend = untracked(bias.unsafe_ptr())
        var biased = bias.dim_size[0]() != 0
        var kind = Int(activation)
        var grid = Grid(batch, m, n, k, panel)
        var left_space = left_size(min(m, TALL), min(DEPTH, k)) + simd_width_of[sum]()
        var sums_space = 0 if sum == dtype else TALL * (COLUMNS + GAP)
        var space = left_space + sums_space
        var scratch = List[Scalar[sum]](unsafe_uninit_length=grid.tasks * space)
        var sp = untracked(scratch.unsafe_ptr())

        def work(task: Int, lower: Int, upper: Int) {
            var grid, var n, var k, var ta, var row_a, var step_a, var row_c, var step_c,
            var ap, var bp, var cp, var addend, var biased, var kind, var sp, var space,
            var left_space
        }:
            var left = sp.unsafe_offset(task * space)
            var spare = left.unsafe_offset(left_space)
            for unit in range(lower, upper):
                var part = grid.part(unit)
                if part.is_empty():
                    continue
                var lines = Matrix(ap.unsafe_offset(part.item * step_a), row_a, 1)
                if ta:
                    lines = lines.turned()
                for i in range(part.row, part.row + part.rows, TALL):
                    var rows = min(TALL, part.row + part.rows - i)
                    for j in range(part.column, part.column + part.columns, COLUMNS):
                        var columns = min(COLUMNS, part.column + part.columns - j)
                        var result = cp.unsafe_offset(part.item * step_c + i * row_c + j)
                        var to = spare
                        var row = columns + GAP
                        comptime if sum == dtype:
                            to = result.unsafe_bitcast[Scalar[sum]]()
                            row = row_c
                        _multiply(rows, columns, n, k, lines.from_(i, 0), left, bp, j, to, row)
                        comptime if sum == dtype:
                            if kind == NONE and not biased:
                                continue
                        for line in range(rows):
                            finish_line(
                                result.unsafe_offset(line * row_c),
                                to.unsafe_offset(line * row),
                                addend.unsafe_offset(j),
                                biased,
                                kind,
                                columns,
                            )

        in_numbered_ranges(work, grid.units, grid.tasks)
        _ = scratch^


@no_inline
def _multiply[
    dtype: DType, sum: DType, //
](
    rows: Int,
    columns: Int,
    n: Int,
    k: Int,
    a: Matrix[dtype],
    left: Address[sum],
    panels: Address[dtype],
    first: Int,
    c: Address[sum],
    row: Int,
):
    """`c[rows, columns] = a[rows, k] b[k, first:]`, `b` of `n` columns in panels; `left` is space
    for panels of `a`."""
    comptime panel = _panel[dtype]()
    var across = ceildiv(n, panel) * panel
    if k == 0:
        for i in range(rows):
            for j in range(columns):
                c[unsafe_offset = i * row + j] = 0
    for p in range(0, k, DEPTH):
        var depth = min(DEPTH, k - p)
        pack_left(left, a.from_(0, p), rows, depth)
        var begin = panels.unsafe_offset(p * across + first * depth)
        for j in range(0, columns, panel):
            var right = begin.unsafe_offset(j * depth)
            var following = right.unsafe_offset(panel * depth)
            var more = panel
            if j + panel >= columns:
                # The same columns' next stretch.
                var next = min(DEPTH, k - p - depth)
                following = panels.unsafe_offset((p + depth) * across + first * next)
                more = panel if next > 0 else 0
            tiles(
                rows,
                min(panel, columns - j),
                depth,
                left,
                right,
                panel,
                c.unsafe_offset(j),
                row,
                p != 0,
                Matrix(following, panel, 1),
                more,
            )
