"""Loops over lines that are scanned, a vector of them at a time."""

from std.math import ceildiv

from ..core.memory import Address
from ..core.team import in_ranges, task_count
from ..gemm.panels import transpose

# Steps that a task should have at least.
comptime GRAIN = 8192


def sum_type[dtype: DType]() -> DType:
    """As in torch, floats are added up as doubles."""
    return DType.float64 if dtype == DType.float32 else dtype


def running_type[dtype: DType, target: StaticString]() -> DType:
    """In what dtype products and sums run along an axis: on CPU as running sums do, and for 16
    bits in float32."""
    if dtype.is_half_float():
        return DType.float32
    return sum_type[dtype]() if target == "cpu" else dtype


trait Scanning(Deinitable, ImplicitlyCopyable, RegisterPassable):
    """Lines of `[outer, n, inner]`, of which some are scanned at a time."""

    def beside[width: Int](self, first: Int, n: Int, inner: Int):
        """Lines whose numbers lie beside each other, from element `first` on."""
        ...

    def behind[width: Int](self, first: Int, n: Int):
        """Lines that lie behind each other, from element `first` on."""
        ...


def scan_lines[
    Kind: Scanning, //, width: Int
](lines: Kind, outer: Int, n: Int, inner: Int):
    """Scans all lines, `width` of them at a time where so many lie together."""
    var blocks = ceildiv(inner, width)
    var units = ceildiv(outer, width) if inner == 1 else outer * blocks
    var tasks = task_count(units, outer * n * inner, GRAIN)

    def work(lower: Int, upper: Int) {var lines, var outer, var n, var inner, var blocks}:
        for unit in range(lower, upper):
            if inner == 1:
                var line = unit * width
                if line + width <= outer:
                    lines.behind[width](line * n, n)
                    continue
                for k in range(line, outer):
                    lines.beside[1](k * n, n, 1)
                continue
            var column = unit % blocks * width
            var at = unit // blocks * n * inner + column
            if column + width <= inner:
                lines.beside[width](at, n, inner)
                continue
            for k in range(inner - column):
                lines.beside[1](at + k, n, inner)

    in_ranges(work, units, tasks)


@always_inline
def columns_of[
    dtype: DType, //, width: Int
](x: Address[dtype], row: Int, columns: Int) -> Array[SIMD[dtype, width], width]:
    """Up to `width` columns of `width` rows, a vector each."""
    var block = Array[SIMD[dtype, width], width](fill=SIMD[dtype, width](0))
    if columns == width:
        comptime for k in range(width):
            block[k] = x.unsafe_load[width=width](k * row)
        transpose(block)
    else:
        for j in range(columns):
            for k in range(width):
                block[j][k] = x[unsafe_offset = k * row + j]
    return block^


@always_inline
def store_columns[
    dtype: DType, //, width: Int
](mut block: Array[SIMD[dtype, width], width], to: Address[dtype], row: Int, columns: Int):
    """The reverse of `columns_of`."""
    if columns == width:
        transpose(block)
        comptime for k in range(width):
            to.unsafe_store(k * row, block[k])
    else:
        for j in range(columns):
            for k in range(width):
                to[unsafe_offset = k * row + j] = block[j][k]
