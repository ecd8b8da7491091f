"""Fourier transforms of lines: mixed radix by Stockham's passes, and Bluestein's convolution for
lengths with a large prime factor."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, sqrt
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, task_count
from .gpu import on_gpu
from .lines import C2C, C2C_REAL, C2R, R2C, R2C_FULL, transform_columns, transform_lines
from .tables import Tables

# Lines of at most this many elements are transformed several at a time.
comptime SHORT = 512
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
    comptime width = simd_width_of[dtype]()
    var packed = kind != C2C and n % 2 == 0
    var count = n // 2 if packed else n
    var tables = Tables[dtype](count, n if packed else 0)
    # A transform of `n + 1` numbers fits as well.
    var room = 2 * (max(tables.length, n) + 1)
    var memory = List[Scalar[dtype]](unsafe_uninit_length=tables.size)
    var tasks = task_count(lines, lines * tables.length * 4, GRAIN)
    var lanes = width if tables.length <= SHORT and lines >= width else 1
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * 2 * room * lanes)
    var spare = untracked(scratch.unsafe_ptr())
    tables.fill(untracked(memory.unsafe_ptr()), spare)
    var factor = scale.cast[dtype]()

    def some(task: Int, lower: Int, upper: Int) {
        var x, var row_x, var y, var row_y, var lines, var n, var inverse, var factor,
        var tables, var spare, var room, var lanes
    }:
        var a = spare.unsafe_offset(task * 2 * room * lanes)
        var b = a.unsafe_offset(room * lanes)
        var line = lower * lanes
        var end = min(lines, upper * lanes)
        while line < end:
            var from_ = x.unsafe_offset(line * row_x)
            var to = y.unsafe_offset(line * row_y)
            if lanes > 1 and line + width <= end:
                transform_lines[kind, width](
                    from_, row_x, to, row_y, n, tables, a, b, inverse, factor
                )
                line += width
            else:
                transform_lines[kind, 1](
                    from_, row_x, to, row_y, n, tables, a, b, inverse, factor
                )
                line += 1

    in_numbered_ranges(some, ceildiv(lines, lanes), tasks)
    _ = scratch^
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
    comptime width = simd_width_of[dtype]()
    var tables = Tables[dtype](n, 0)
    var room = 2 * (max(tables.length, n) + 1)
    var memory = List[Scalar[dtype]](unsafe_uninit_length=tables.size)
    # As many columns at a time as a vector has, or what is next to that.
    var lanes = 1
    comptime for part in range(3):
        if lanes == 1 and inner >= width >> part:
            lanes = max(1, width >> part)
    var blocks = ceildiv(inner, lanes)
    var units = outer * blocks
    var tasks = task_count(units, units * tables.length * lanes * 4, GRAIN)
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * 2 * room * lanes)
    var spare = untracked(scratch.unsafe_ptr())
    tables.fill(untracked(memory.unsafe_ptr()), spare)
    var factor = scale.cast[dtype]()

    def some(task: Int, lower: Int, upper: Int) {
        var x, var y, var n, var inner, var inverse, var factor, var tables, var spare, var room,
        var lanes, var blocks
    }:
        var a = spare.unsafe_offset(task * 2 * room * lanes)
        var b = a.unsafe_offset(room * lanes)
        for unit in range(lower, upper):
            # The last block of columns overlaps the one before it.
            var column = min(unit % blocks * lanes, inner - lanes)
            var at = 2 * (unit // blocks * n * inner + column)
            var from_ = x.unsafe_offset(at)
            var to = y.unsafe_offset(at)
            comptime for part in range(3):
                comptime several = max(1, width >> part)
                if several > 1 and lanes == several:
                    transform_columns[several](
                        from_, to, 2 * inner, n, tables, a, b, inverse, factor
                    )
            if lanes == 1:
                transform_columns[1](from_, to, 2 * inner, n, tables, a, b, inverse, factor)

    in_numbered_ranges(some, units, tasks)
    _ = scratch^
    _ = memory^


@always_inline
def _scale(normalization: Int64, n: Int) -> Float64:
    """What sums are multiplied by: see `Transform`."""
    if normalization == 1:
        return 1 / sqrt(Float64(n))
    return 1 / Float64(n) if normalization == 2 else 1.0


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
    `normalization` 0 leaves the sum, 1 divides by `sqrt(n)`, 2 by `n`. Scratch for
    GPUs: twice `[lines * n * 2]` and `[n * 2]`; none on CPU."""

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
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var lines = x.dim_size[0]()
        var row_x = x.dim_size[1]()
        var row_y = output.dim_size[1]()
        if output.dim_size[0]() != lines:
            raise Error("the transform has other lines than its argument")
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
        comptime which = C2C if kind == "c2c" else (
            R2C if kind
            == "r2c" else (
                R2C_FULL if kind == "r2c_full" else (C2C_REAL if kind == "c2c_real" else C2R)
            )
        )
        var from_ = untracked(x.unsafe_ptr())
        var to = untracked(output.unsafe_ptr())
        comptime if target == "cpu":
            _on_cpu[which](from_, row_x, to, row_y, lines, n, inverse, scale)
        else:
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
