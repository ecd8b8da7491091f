"""Transforms of several lines, or of several columns, on one thread."""

from std.sys import simd_width_of, size_of
from std.sys.intrinsics import PrefetchOptions, prefetch

from ..core.memory import Address
from .lines import C2C, transform_columns, transform_lines
from .tables import Tables

# Lines of at most this many elements are transformed several at a time.
comptime SHORT = 512
# Numbers that fill whole cache lines, whatever their dtype.
comptime LINE = 16
# How much of the next line is asked for while one is transformed; the processor finds the rest.
comptime _AHEAD = 8


@always_inline
def _ahead[dtype: DType, //, write: Bool](x: Address[dtype], count: Int):
    """Asks for numbers that come next."""
    comptime line = 64 // size_of[Scalar[dtype]]()
    comptime near = PrefetchOptions().medium_locality().to_data_cache()
    comptime how = near.for_write() if write else near.for_read()
    comptime for j in range(_AHEAD):
        prefetch[how](x.unsafe_offset(min(j * line, count - 1)))


@always_inline
def _plane_pair(n: Int, lanes: Int) -> Int:
    """Numbers in two planes of up to `n + 1` elements, in whole cache lines: vectors that cross
    these cost twice as much."""
    return (2 * (n + 1) * lanes + LINE - 1) // LINE * LINE


struct Lines[dtype: DType, kind: Int](TrivialRegisterPassable):
    """Transforms of lines: a vector of them at a time, or one after the other."""

    var n: Int
    var tables: Tables[Self.dtype]
    var lanes: Int
    var inverse: Bool
    var scale: Scalar[Self.dtype]

    def __init__(out self, n: Int, lines: Int, inverse: Bool, scale: Float64):
        """For at least one transform of `lines` of `n` numbers; the tables are not filled yet."""
        comptime width = simd_width_of[Self.dtype]()
        var packed = Self.kind != C2C and n % 2 == 0
        self.n = n
        self.tables = Tables[Self.dtype](
            n // 2 if packed else n, n if packed else 0, alone=True
        )
        var alone = self.tables.plan.alone or self.tables.length > SHORT or lines < width
        self.lanes = 1 if alone else width
        self.inverse = inverse
        self.scale = scale.cast[Self.dtype]()

    @always_inline
    def scratch(self) -> Int:
        """Numbers of scratch memory."""
        return 2 * _plane_pair(max(self.tables.length, self.n), self.lanes)

    @always_inline
    def transform(
        self,
        x: Address[Self.dtype],
        row_x: Int,
        y: Address[Self.dtype],
        row_y: Int,
        lines: Int,
        scratch: Address[Self.dtype],
    ):
        """Some lines, to other memory than `x`; rows are given as of `transform_lines`."""
        comptime width = simd_width_of[Self.dtype]()
        var b = scratch.unsafe_offset(self.scratch() // 2)
        var line = 0
        while line < lines:
            if self.lanes > 1 and lines >= width:
                # The last ones with some of those before them.
                line = min(line, lines - width)
            var from_ = x.unsafe_offset(line * row_x)
            var to = y.unsafe_offset(line * row_y)
            if self.lanes == 1 and line + 1 < lines:
                _ahead[False](from_.unsafe_offset(row_x), row_x)
                _ahead[True](to.unsafe_offset(row_y), row_y)
            if self.lanes > 1 and line + width <= lines:
                transform_lines[Self.kind, width](
                    from_,
                    row_x,
                    to,
                    row_y,
                    self.n,
                    self.tables,
                    scratch,
                    b,
                    self.inverse,
                    self.scale,
                )
                line += width
            else:
                transform_lines[Self.kind, 1](
                    from_,
                    row_x,
                    to,
                    row_y,
                    self.n,
                    self.tables,
                    scratch,
                    b,
                    self.inverse,
                    self.scale,
                )
                line += 1


struct Columns[dtype: DType](TrivialRegisterPassable):
    """Transforms of columns of pairs `[n, inner, 2]`: as many beside each other as a vector has, or
    what is next to that."""

    var n: Int
    var inner: Int
    var tables: Tables[Self.dtype]
    var lanes: Int
    var inverse: Bool
    var scale: Scalar[Self.dtype]

    def __init__(out self, n: Int, inner: Int, inverse: Bool, scale: Float64):
        """The tables are not filled yet."""
        comptime width = simd_width_of[Self.dtype]()
        self.n = n
        self.inner = inner
        self.tables = Tables[Self.dtype](n, 0)
        self.lanes = 1
        comptime for part in range(3):
            if self.lanes == 1 and inner >= width >> part:
                self.lanes = max(1, width >> part)
        self.inverse = inverse
        self.scale = scale.cast[Self.dtype]()

    @always_inline
    def blocks(self) -> Int:
        return (self.inner + self.lanes - 1) // self.lanes

    @always_inline
    def scratch(self) -> Int:
        """Numbers of scratch memory."""
        return 2 * _plane_pair(max(self.tables.length, self.n), self.lanes)

    @always_inline
    def transform(
        self,
        x: Address[Self.dtype],
        row_x: Int,
        y: Address[Self.dtype],
        row_y: Int,
        block: Int,
        scratch: Address[Self.dtype],
    ):
        """One block of columns; `y` is other memory than `x`."""
        comptime width = simd_width_of[Self.dtype]()
        # The last block of columns overlaps the one before it.
        var column = 2 * min(block * self.lanes, self.inner - self.lanes)
        var from_ = x.unsafe_offset(column)
        var to = y.unsafe_offset(column)
        var b = scratch.unsafe_offset(self.scratch() // 2)
        comptime for part in range(3):
            comptime several = max(1, width >> part)
            if several > 1 and self.lanes == several:
                transform_columns[several](
                    from_,
                    row_x,
                    to,
                    row_y,
                    self.n,
                    self.tables,
                    scratch,
                    b,
                    self.inverse,
                    self.scale,
                )
        if self.lanes == 1:
            transform_columns[1](
                from_, row_x, to, row_y, self.n, self.tables, scratch, b, self.inverse, self.scale
            )
