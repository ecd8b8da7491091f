"""Fourier transforms of lines: mixed radix by Stockham's passes, and Bluestein's convolution for
lengths with a large prime factor."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, sqrt

from ..core.memory import Address, line_start, untracked
from ..core.team import in_numbered_ranges, task_count
from .gpu import on_gpu
from .lines import C2C, C2C_REAL, C2R, R2C, R2C_FULL, mirror
from .several import Columns, LINE, Lines

# Steps that a task should have at least.
comptime GRAIN = 32768


def _on_cpu[
    dtype: DType, //, kind: Int
](
    x: Address[dtype],
    row_x: Int,
    y: Address[dtype],
    row_y: Int,
    lines: Int,
    n: Int,
    inverse: Bool,
    scale: Float64,
):
    """All lines, split over threads."""
    var all = Lines[dtype, kind](n, lines, inverse, scale)
    var tasks = task_count(lines, lines * all.tables.length * 4, GRAIN)
    var memory = List[Scalar[dtype]](
        unsafe_uninit_length=tasks * all.scratch() + all.tables.size + LINE
    )
    var spare = line_start(memory.unsafe_ptr())
    all.tables.fill(spare.unsafe_offset(tasks * all.scratch()), spare)

    def some(task: Int, lower: Int, upper: Int) {
        var x, var row_x, var y, var row_y, var lines, var all, var spare
    }:
        var line = lower * all.lanes
        var count = min(lines, upper * all.lanes) - line
        var a = spare.unsafe_offset(task * all.scratch())
        all.transform(
            x.unsafe_offset(line * row_x), row_x, y.unsafe_offset(line * row_y), row_y, count, a
        )

    in_numbered_ranges(some, ceildiv(lines, all.lanes), tasks)
    _ = memory^


def _columns_on_cpu[
    dtype: DType, //
](
    x: Address[dtype],
    y: Address[dtype],
    outer: Int,
    n: Int,
    inner: Int,
    inverse: Bool,
    scale: Float64,
):
    """All lines along the middle axis of pairs `[outer, n, inner, 2]`, split over threads."""
    var all = Columns[dtype](n, inner, inverse, scale)
    var units = outer * all.blocks()
    var tasks = task_count(units, units * all.tables.length * all.lanes * 4, GRAIN)
    var memory = List[Scalar[dtype]](
        unsafe_uninit_length=tasks * all.scratch() + all.tables.size + LINE
    )
    var spare = line_start(memory.unsafe_ptr())
    all.tables.fill(spare.unsafe_offset(tasks * all.scratch()), spare)

    def some(task: Int, lower: Int, upper: Int) {var x, var y, var all, var spare}:
        var a = spare.unsafe_offset(task * all.scratch())
        var row = 2 * all.inner
        for unit in range(lower, upper):
            var (image, block) = divmod(unit, all.blocks())
            var at = image * all.n * row
            all.transform(x.unsafe_offset(at), row, y.unsafe_offset(at), row, block, a)

    in_numbered_ranges(some, units, tasks)
    _ = memory^


def _images_on_cpu[
    dtype: DType, //, kind: Int
](
    x: Address[dtype],
    row_x: Int,
    y: Address[dtype],
    row_y: Int,
    images: Int,
    height: Int,
    n: Int,
    inverse: Bool,
    scale: Float64,
):
    """All images of `height` lines, each along both axes while it is in the caches, split over
    threads."""
    comptime half = kind == R2C or kind == R2C_FULL or kind == C2R
    # The second half of an image of real numbers mirrors the first.
    comptime of_lines = R2C if kind == R2C_FULL else kind
    comptime columns_first = kind == C2R or kind == C2C_REAL
    var lines = Lines[dtype, of_lines](n, height, inverse, scale)
    var columns = Columns[dtype](height, n // 2 + 1 if half else n, inverse, 1.0)
    var tasks = task_count(images, images * height * lines.tables.length * 8, GRAIN)
    var between = ceildiv(2 * height * columns.inner, LINE) * LINE
    var each = max(lines.scratch(), columns.scratch()) + between
    var memory = List[Scalar[dtype]](
        unsafe_uninit_length=tasks * each + lines.tables.size + columns.tables.size + LINE
    )
    var spare = line_start(memory.unsafe_ptr())
    var tables = spare.unsafe_offset(tasks * each)
    lines.tables.fill(tables, spare)
    columns.tables.fill(tables.unsafe_offset(lines.tables.size), spare)

    def some(task: Int, lower: Int, upper: Int) {
        var x, var row_x, var y, var row_y, var n, var height, var lines, var columns, var spare,
        var between, var each
    }:
        var image = spare.unsafe_offset(task * each)
        var a = image.unsafe_offset(between)
        var row = 2 * columns.inner
        for i in range(lower, upper):
            var from_ = x.unsafe_offset(i * height * row_x)
            var to = y.unsafe_offset(i * height * row_y)
            comptime if columns_first:
                for block in range(columns.blocks()):
                    columns.transform(from_, row_x, image, row, block, a)
                lines.transform(image, row, to, row_y, height, a)
            else:
                lines.transform(from_, row_x, image, row, height, a)
                for block in range(columns.blocks()):
                    columns.transform(image, row, to, row_y, block, a)
                comptime if kind == R2C_FULL:
                    for k in range(height):
                        var other = to.unsafe_offset((height - k) % height * row_y)
                        mirror(to.unsafe_offset(k * row_y), other, n)

    in_numbered_ranges(some, images, tasks)
    _ = memory^


@always_inline
def _scale(normalization: Int64, n: Int) -> Float64:
    """What sums are multiplied by: see `Transform`."""
    if normalization == 1:
        return 1 / sqrt(Float64(n))
    return 1 / Float64(n) if normalization == 2 else 1.0


def _number_of(kind: StaticString) -> Int:
    if kind == "c2c":
        return C2C
    if kind == "r2c":
        return R2C
    if kind == "r2c_full":
        return R2C_FULL
    return C2C_REAL if kind == "c2c_real" else C2R


@register("tmb_fft_columns")
struct TransformColumns:
    """Transforms along the middle axis of `x`, pairs `[outer, n, inner * 2]`. Of `normalization`
    see `Transform`."""

    @staticmethod
    def execute[
        dtype: DType, //, inverse: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        normalization: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs transform lines"
        comptime assert dtype.is_floating_point(), "float only"
        var n = x.dim_size[1]()
        if x.size() == 0:
            return
        if output.size() != x.size() or x.dim_size[2]() % 2 != 0:
            raise Error("pairs are transformed to as many pairs")
        _columns_on_cpu(
            untracked(x.unsafe_ptr()),
            untracked(output.unsafe_ptr()),
            x.dim_size[0](),
            n,
            x.dim_size[2]() // 2,
            inverse,
            _scale(normalization, n),
        )


@register("tmb_fft")
struct Transform:
    """Transforms of the lines of `x`: `kind` "c2c" (pairs to pairs), "r2c" (real
    numbers to the first half of the pairs), "r2c_full" (to all of them) or "c2r"
    (the first half of the pairs to real numbers) or, on CPU, "c2c_real" (pairs to
    the real parts of their inverse transform); lines of pairs are `[n * 2]`.
    `normalization` 0 leaves the sum, 1 divides by `sqrt(n)`, 2 by `n`. `height` lines,
    1 on GPUs, are an image that is transformed along both axes. Scratch for GPUs: twice
    `[lines * n * 2]` and `[n * 2]`; none on CPU."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, inverse: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        first: OutputTensor[dtype=dtype, rank=1, ...],
        second: OutputTensor[dtype=dtype, rank=1, ...],
        roots: OutputTensor[dtype=dtype, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        normalization: Int64,
        height: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var lines = x.dim_size[0]()
        var row_x = x.dim_size[1]()
        var row_y = output.dim_size[1]()
        if output.dim_size[0]() != lines:
            raise Error("the transform has other lines than its argument")
        var rows = Int(height)
        if rows < 1 or lines % rows != 0:
            raise Error("lines are no images of this height")
        var n: Int
        comptime if kind == "c2c":
            n = row_x // 2
            if row_y != row_x or row_x % 2 != 0:
                raise Error("lines of pairs are transformed to such of the same length")
        elif kind == "r2c":
            n = row_x
            if row_y != 2 * (n // 2 + 1):
                raise Error("half of a transform has n // 2 + 1 pairs")
        elif kind == "r2c_full":
            n = row_x
            if row_y != 2 * n:
                raise Error("a transform has as many pairs as its argument numbers")
        elif kind == "c2c_real":
            comptime assert target == "cpu", "GPUs transform pairs to pairs"
            n = row_y
            if row_x != 2 * n:
                raise Error("there are as many real parts as pairs")
        else:
            comptime assert kind == "c2r", "unknown kind"
            n = row_y
            if row_x < 2 * (n // 2 + 1):
                raise Error("the transform needs n // 2 + 1 pairs of each line")
        if lines == 0 or n == 0:
            return
        var scale = _scale(normalization, n)
        comptime which = _number_of(kind)
        var from_ = untracked(x.unsafe_ptr())
        var to = untracked(output.unsafe_ptr())
        comptime if target == "cpu":
            if rows > 1:
                scale *= _scale(normalization, rows)
                _images_on_cpu[which](
                    from_, row_x, to, row_y, lines // rows, rows, n, inverse, scale
                )
            else:
                _on_cpu[which](from_, row_x, to, row_y, lines, n, inverse, scale)
        else:
            if rows > 1:
                raise Error("GPUs transform lines")
            on_gpu[which, target](
                from_,
                row_x,
                to,
                row_y,
                lines,
                n,
                inverse,
                scale,
                untracked(first.unsafe_ptr()),
                untracked(second.unsafe_ptr()),
                untracked(roots.unsafe_ptr()),
                ctx,
            )
