"""Matrix products of bfloat16 by the instructions that a CPU has for them. These multiply pairs of
numbers and add both products to a sum of float32.

`-D TMB_BFLOAT16=` says which: `tiles` of AMX, or `dots` of AVX512-BF16; without it there is none,
and `panels.mojo` widens what it multiplies. Inside a MAX graph there is none either.

One operand is read where it lies, in lines along the inner dimension. The other is copied to panels
of 16 lines, in which the pairs of these lines lie side by side."""

from std.math import ceildiv
from std.memory import Pointer, bitcast
from std.sys import get_defined_string
from std.sys.intrinsics import PrefetchOptions, llvm_intrinsic, prefetch

from ..core.memory import CACHE_LINE, Address, untracked
from ..core.team import STEPS
from .panels import Matrix, transpose

comptime UNIT = get_defined_string["TMB_BFLOAT16", ""]() if STEPS else ""

# Lines of a panel, and of a tile.
comptime SIDE = 16
# Lines of a block of the result: two tiles.
comptime BLOCK = 2 * SIDE
# Steps along the inner dimension that a tile has.
comptime DEPTH = 32
# Steps at a time, and lines whose panels are made at a time: together a part of a second-level cache.
comptime DEEP = 1024
comptime LINES = 256
# Numbers of panels that may be deeper: then no sum is added to what is in memory.
comptime ROOM = 3 * DEEP * LINES // 2
# Rows of a result that are worth the copy, and columns.
comptime LEAST = 9

comptime Half = Address[DType.bfloat16]
comptime Single = Address[DType.float32]


@always_inline
def dots(
    sums: SIMD[DType.float32, SIDE],
    left: SIMD[DType.bfloat16, 2 * SIDE],
    right: SIMD[DType.bfloat16, 2 * SIDE],
) -> SIMD[DType.float32, SIDE]:
    """Sums, and both products of each pair of numbers, by AVX512-BF16."""
    return llvm_intrinsic["llvm.x86.avx512bf16.dpbf16ps.512", SIMD[DType.float32, SIDE]](
        sums, left, right
    )


@fieldwise_init
struct Ahead(TrivialRegisterPassable):
    """Lines that are read next: `lines` of them, which lie `apart`. Nobody asks for them in a
    burst, which would hold up what is read now."""

    var start: Half
    var apart: Int
    var lines: Int

    @always_inline
    def bring(self, step: Int):
        """Asks for a cache line of each."""
        for i in range(self.lines):
            prefetch[PrefetchOptions().for_read().medium_locality().to_data_cache()](
                self.start.unsafe_offset(i * self.apart + step)
            )


@always_inline
def part_of_block(lines: Half, apart: Int, number: Int, each: Int) -> Ahead:
    """Of the block of lines after the one at `lines`, the part that is asked for with the block of
    columns of this number, `each` lines with every one."""
    var first = number * each
    return Ahead(
        lines.unsafe_offset((BLOCK + first) * apart), apart, max(0, min(each, BLOCK - first))
    )


trait Unit(Movable):
    """What multiplies a block of lines with panels."""

    def __init__(out self):
        ...

    def block[
        high: Int, wide: Int
    ](
        mut self,
        lines: Half,
        apart: Int,
        panels: Half,
        panel: Int,
        depth: Int,
        to: Single,
        ahead: Ahead,
    ):
        """Writes `[high * 16, wide * 16]` sums, in rows of 32, of lines that lie `apart` and panels
        that lie `panel` apart; `depth` is a multiple of 32. What is `ahead` may be asked for."""
        ...

    def close(mut self):
        """Gives back what the unit holds of the thread."""
        ...


trait Registers(Movable):
    """Eight tiles of 16 rows of 64 bytes."""

    def __init__(out self):
        ...

    def zero[tile: Int](mut self):
        """Sets a tile to zeros."""
        ...

    def load[tile: Int](mut self, source: Half, stride: Int):
        """Reads a tile of pairs whose rows lie `stride` bytes apart."""
        ...

    def multiply[to: Int, left: Int, right: Int](mut self):
        """Adds the product of two tiles of pairs to a tile of sums."""
        ...

    def store[tile: Int](mut self, to: Single, stride: Int):
        """Writes a tile of sums in rows that lie `stride` bytes apart."""
        ...

    def close(mut self):
        """Gives the tiles back."""
        ...


struct Amx(Registers):
    """The tiles of a CPU. The process must have asked the system for them."""

    @always_inline
    def __init__(out self):
        var layout = Array[Int8, 64](fill=0)
        layout[0] = 1
        comptime for tile in range(8):
            layout[16 + 2 * tile] = 64
            layout[48 + tile] = SIDE
        llvm_intrinsic["llvm.x86.ldtilecfg", NoneType](layout.unsafe_ptr())

    @always_inline
    def zero[tile: Int](mut self):
        llvm_intrinsic["llvm.x86.tilezero", NoneType](Int8(tile))

    @always_inline
    def load[tile: Int](mut self, source: Half, stride: Int):
        llvm_intrinsic["llvm.x86.tileloadd64", NoneType](Int8(tile), source, stride)

    @always_inline
    def multiply[to: Int, left: Int, right: Int](mut self):
        llvm_intrinsic["llvm.x86.tdpbf16ps", NoneType](Int8(to), Int8(left), Int8(right))

    @always_inline
    def store[tile: Int](mut self, to: Single, stride: Int):
        llvm_intrinsic["llvm.x86.tilestored64", NoneType](Int8(tile), to, stride)

    @always_inline
    def close(mut self):
        llvm_intrinsic["llvm.x86.tilerelease", NoneType]()


struct Tiles[Kind: Registers & Deinitable = Amx](Unit):
    """Blocks by tiles: four of sums, two of each operand."""

    var registers: Self.Kind

    @always_inline
    def __init__(out self):
        self.registers = Self.Kind()

    @always_inline
    def block[
        high: Int, wide: Int
    ](
        mut self,
        lines: Half,
        apart: Int,
        panels: Half,
        panel: Int,
        depth: Int,
        to: Single,
        ahead: Ahead,
    ):
        comptime for i in range(high):
            comptime for j in range(wide):
                self.registers.zero[2 * i + j]()
        for p in range(0, depth, DEPTH):
            ahead.bring(p)
            comptime for i in range(high):
                var line = lines.unsafe_offset(i * SIDE * apart + p)
                self.registers.load[4 + i](line, 2 * apart)
            comptime for j in range(wide):
                self.registers.load[6 + j](panels.unsafe_offset(j * panel + p * SIDE), CACHE_LINE)
            comptime for i in range(high):
                comptime for j in range(wide):
                    self.registers.multiply[2 * i + j, 4 + i, 6 + j]()
        comptime for i in range(high):
            comptime for j in range(wide):
                var part = to.unsafe_offset(i * SIDE * BLOCK + j * SIDE)
                self.registers.store[2 * i + j](part, 4 * BLOCK)

    @always_inline
    def close(mut self):
        self.registers.close()


struct Dots(Unit):
    """Blocks by dot products of pairs, 8 lines at a time."""

    @always_inline
    def __init__(out self):
        pass

    @always_inline
    def block[
        high: Int, wide: Int
    ](
        mut self,
        lines: Half,
        apart: Int,
        panels: Half,
        panel: Int,
        depth: Int,
        to: Single,
        ahead: Ahead,
    ):
        comptime rows = 8
        comptime Sum = SIMD[DType.float32, SIDE]
        for first in range(0, high * SIDE, rows):
            var from_ = lines.unsafe_offset(first * apart)
            var sums = Array[Sum, rows * wide](fill=Sum(0))
            for p in range(0, depth, 2):
                var right = Array[SIMD[DType.bfloat16, 2 * SIDE], wide](
                    fill=SIMD[DType.bfloat16, 2 * SIDE](0)
                )
                comptime for j in range(wide):
                    right[j] = panels.unsafe_load[width = 2 * SIDE](j * panel + p * SIDE)
                comptime for i in range(rows):
                    var pair = from_.unsafe_load[width=2](i * apart + p)
                    var left = bitcast[DType.bfloat16, 2 * SIDE](
                        SIMD[DType.int32, SIDE](bitcast[DType.int32, 1](pair))
                    )
                    comptime for j in range(wide):
                        sums[i * wide + j] = dots(sums[i * wide + j], left, right[j])
            comptime for i in range(rows):
                comptime for j in range(wide):
                    to.unsafe_store((first + i) * BLOCK + j * SIDE, sums[i * wide + j])

    @always_inline
    def close(mut self):
        pass


@always_inline
def takes_pairs[
    a_type: DType, b_type: DType, sum: DType, //, rounded: Bool
](m: Int, n: Int, k: Int, a: Matrix[a_type], b: Matrix[b_type], c: Address[sum]) -> Bool:
    """Whether `product_of_pairs` multiplies such operands here: of bfloat16, or of float32 that may
    be `rounded` to it."""
    comptime single = rounded and a_type == DType.float32
    comptime fits = a_type == b_type and sum == DType.float32 and UNIT != ""
    comptime if fits and (a_type == DType.bfloat16 or single):
        return m >= LEAST and n >= LEAST and k >= DEPTH
    return False


@always_inline
def multiply_pairs[
    a_type: DType, b_type: DType, sum: DType, //
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[a_type],
    b: Matrix[b_type],
    c: Address[sum],
    row: Int,
    added: Bool,
):
    """`product_of_pairs` by what the build has."""
    comptime if UNIT == "tiles":
        product_of_pairs[Tiles[]](m, n, k, a, b, c.unsafe_bitcast[Float32](), row, added)
    elif UNIT == "dots":
        product_of_pairs[Dots](m, n, k, a, b, c.unsafe_bitcast[Float32](), row, added)


@no_inline
def product_of_pairs[
    a_type: DType, b_type: DType, //, Kind: Unit & Deinitable
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[a_type],
    b: Matrix[b_type],
    c: Single,
    row: Int,
    added: Bool,
):
    """`c[m, n] = a[m, k] b[k, n]`, or added to what is there; `row` the distance of rows of `c`.
    What is no bfloat16 is rounded to it first."""
    # The longer operand is read where it lies if it can be.
    if b.row == 1 and (n >= m or a.column != 1):
        _by_lines[Kind](n, m, k, b.turned(), a, c, 1, row, added)
    else:
        _by_lines[Kind](m, n, k, a, b.turned(), c, row, 1, added)


@no_inline
def _by_lines[
    dtype: DType, other_type: DType, //, Kind: Unit & Deinitable
](
    count: Int,
    others: Int,
    k: Int,
    lines: Matrix[dtype],
    other: Matrix[other_type],
    c: Single,
    row: Int,
    column: Int,
    added: Bool,
):
    """The dot product of each of `count` lines with each of `others`, to `c[line * row + other *
    column]`."""
    var wide = min(LINES, ceildiv(others, SIDE) * SIDE)
    var deep = ceildiv(k, DEPTH) * DEPTH
    if deep * wide > ROOM:
        deep = min(deep, DEEP)
    # Past the end are the last loads and stores of whole vectors.
    var space = List[BFloat16](unsafe_uninit_length=deep * (wide + BLOCK) + BLOCK * SIDE)
    var panels = untracked(space.unsafe_ptr())
    var copied = panels.unsafe_offset(deep * wide)
    var sums = List[Float32](unsafe_uninit_length=BLOCK * BLOCK)
    var block = untracked(sums.unsafe_ptr())
    var unit = Kind()
    for p in range(0, k, deep):
        var steps = min(deep, k - p)
        var depth = ceildiv(steps, DEPTH) * DEPTH
        var adds = added or p != 0
        for j0 in range(0, others, LINES):
            var columns = min(LINES, others - j0)
            _pack_panels(panels, other.from_(j0, p), columns, steps, depth)
            for i in range(0, count, BLOCK):
                var rows = min(BLOCK, count - i)
                var first = copied
                var apart = depth
                # Of the next block, how many lines are asked for with each block of columns.
                var each = 0
                comptime whole = dtype == DType.bfloat16
                if whole and lines.column == 1 and rows % SIDE == 0 and steps == depth:
                    first = lines.at(i, p).unsafe_bitcast[BFloat16]()
                    apart = lines.row
                    if i + 2 * BLOCK <= count and j0 == 0:
                        each = ceildiv(BLOCK, ceildiv(columns, BLOCK))
                else:
                    _copy_lines(copied, lines.from_(i, p), rows, steps, depth)
                for j in range(0, columns, BLOCK):
                    var from_ = panels.unsafe_offset(j * depth)
                    var panel = SIDE * depth
                    var ahead = part_of_block(first, apart, j // BLOCK, each)
                    var here = min(BLOCK, columns - j)
                    multiply_block(
                        unit, rows, here, first, apart, from_, panel, depth, block, ahead
                    )
                    var to = c.unsafe_offset(i * row + (j0 + j) * column)
                    write_block(to, row, column, block, rows, here, adds)
    unit.close()
    _ = space^
    _ = sums^


@always_inline
def _some[dtype: DType, //](source: Address[dtype]) -> SIMD[DType.bfloat16, SIDE]:
    return source.unsafe_load[width=SIDE](0).cast[DType.bfloat16]()


@always_inline
def _pair_lines[
    dtype: DType, //, whole: Bool
](to: Half, lines: Matrix[dtype], count: Int, steps: Int):
    """The panel of 16 lines, if `whole`, or less."""
    comptime Words = SIMD[DType.int32, SIDE]
    for p in range(0, steps, DEPTH):
        var rows = Array[Words, SIDE](fill=Words(0))
        comptime for i in range(SIDE):
            if whole or i < count:
                rows[i] = bitcast[DType.int32, SIDE](
                    lines.at(i, p).unsafe_load[width=DEPTH](0).cast[DType.bfloat16]()
                )
        transpose[dtype=DType.int32, width=SIDE](rows)
        comptime for i in range(SIDE):
            to.unsafe_store((p + 2 * i) * SIDE, bitcast[DType.bfloat16, DEPTH](rows[i]))


@always_inline
def _pair_columns[
    dtype: DType, //
](to: Half, panel: Int, lines: Matrix[dtype], steps: Int):
    """Two panels, which lie `panel` apart, of lines that lie side by side. Asks for the next two,
    which no processor expects: they are far from each other."""
    for p in range(0, steps, 2):
        var first = lines.at(0, p).unsafe_load[width=BLOCK](0).cast[DType.bfloat16]()
        var second = lines.at(0, p + 1).unsafe_load[width=BLOCK](0).cast[DType.bfloat16]()
        var both = first.interleave(second)
        to.unsafe_store(p * SIDE, both.slice[BLOCK, offset=0]())
        to.unsafe_store(panel + p * SIDE, both.slice[BLOCK, offset=BLOCK]())
        comptime for next in range(2):
            prefetch[PrefetchOptions().for_read().medium_locality().to_data_cache()](
                lines.at(BLOCK, p + next)
            )


def _pack_panels[
    dtype: DType, //
](to: Half, lines: Matrix[dtype], count: Int, steps: Int, depth: Int):
    """Copies lines to panels of 16."""
    var done = steps // 2 * 2
    for j in range(0, count, SIDE):
        var place = to.unsafe_offset(j * depth)
        var even = j // SIDE % 2 == 0
        var two = lines.row == 1 and lines.column != 1 and (j if even else j - SIDE) + BLOCK <= count
        if two and even:
            _pair_columns(place, SIDE * depth, lines.from_(j, 0), done)
        _pack_pairs(
            place, lines.from_(j, 0), min(SIDE, count - j), steps, depth, done if two else 0
        )


def _pack_pairs[
    dtype: DType, //
](to: Half, lines: Matrix[dtype], count: Int, steps: Int, depth: Int, known: Int):
    """Copies up to 16 lines to a panel, `[depth / 2, 16, 2]`, with zeros where there are none. The
    first steps may be `known`."""
    var done = known
    if known != 0:
        pass
    elif lines.column == 1:
        done = steps // DEPTH * DEPTH
        if count == SIDE:
            _pair_lines[True](to, lines, count, done)
        else:
            _pair_lines[False](to, lines, count, done)
    elif lines.row == 1 and count == SIDE:
        done = steps // 2 * 2
        for p in range(0, done, 2):
            var first = _some(lines.at(0, p))
            var second = _some(lines.at(0, p + 1))
            to.unsafe_store(p * SIDE, first.interleave(second))
    for p in range(done, depth):
        for i in range(SIDE):
            var place = p // 2 * 2 * SIDE + 2 * i + p % 2
            if i < count and p < steps:
                to[unsafe_offset=place] = lines.at(i, p)[].cast[DType.bfloat16]()
            else:
                to[unsafe_offset=place] = 0


def _copy_lines[
    dtype: DType, //
](to: Half, lines: Matrix[dtype], rows: Int, steps: Int, depth: Int):
    """Copies up to 32 lines one after the other, `[32, depth]`, with zeros where there are none."""
    var whole = steps // SIDE * SIDE
    if lines.row == 1 and lines.column != 1:
        for i in range(0, rows, SIDE):
            if i + SIDE > rows:
                whole = 0
            for p in range(0, whole, SIDE):
                var some = Array[SIMD[DType.uint16, SIDE], SIDE](fill=SIMD[DType.uint16, SIDE](0))
                comptime for s in range(SIDE):
                    some[s] = bitcast[DType.uint16, SIDE](_some(lines.at(i, p + s)))
                transpose[dtype=DType.uint16, width=SIDE](some)
                comptime for s in range(SIDE):
                    to.unsafe_store((i + s) * depth + p, bitcast[DType.bfloat16, SIDE](some[s]))
            for s in range(i, min(i + SIDE, rows)):
                for p in range(whole, steps):
                    to[unsafe_offset = s * depth + p] = lines.at(s, p)[].cast[DType.bfloat16]()
    else:
        if lines.column != 1:
            whole = 0
        for i in range(rows):
            var line = to.unsafe_offset(i * depth)
            for p in range(0, whole, SIDE):
                line.unsafe_store(p, _some(lines.at(i, p)))
            for p in range(whole, steps):
                line[unsafe_offset=p] = lines.at(i, p)[].cast[DType.bfloat16]()
    for i in range(BLOCK):
        var line = to.unsafe_offset(i * depth)
        for p in range(steps if i < rows else 0, depth):
            line[unsafe_offset=p] = 0


@always_inline
def multiply_block[
    Kind: Unit & Deinitable, //
](
    mut unit: Kind,
    rows: Int,
    columns: Int,
    lines: Half,
    apart: Int,
    panels: Half,
    panel: Int,
    depth: Int,
    to: Single,
    ahead: Ahead,
):
    """`Unit.block` of the tiles that hold so many rows and columns, up to 32 of each."""
    comptime for high in range(1, 3):
        comptime for wide in range(1, 3):
            if (rows > SIDE) == (high == 2) and (columns > SIDE) == (wide == 2):
                unit.block[high, wide](lines, apart, panels, panel, depth, to, ahead)


def write_block(
    to: Single, row: Int, column: Int, block: Single, rows: Int, columns: Int, added: Bool
):
    """Writes a block of sums, `[rows, columns]` of rows of 32, to `to[i * row + j * column]`."""
    comptime Sum = SIMD[DType.float32, SIDE]
    for i in range(0, rows, SIDE):
        for j in range(0, columns, SIDE):
            var from_ = block.unsafe_offset(i * BLOCK + j)
            var part = to.unsafe_offset(i * row + j * column)
            var high = min(SIDE, rows - i)
            var wide = min(SIDE, columns - j)
            var some = Array[Sum, SIDE](fill=Sum(0))
            comptime for s in range(SIDE):
                some[s] = from_.unsafe_load[width=SIDE](s * BLOCK)
            var along = column == 1
            if not along:
                transpose[dtype=DType.float32, width=SIDE](some)
                swap(high, wide)
            var next = row if along else column
            comptime for s in range(SIDE):
                if s < high:
                    var line = part.unsafe_offset(s * next)
                    if wide == SIDE:
                        if added:
                            some[s] += line.unsafe_load[width=SIDE](0)
                        line.unsafe_store(0, some[s])
                    else:
                        for q in range(wide):
                            var old = line[unsafe_offset=q] if added else Float32(0)
                            line[unsafe_offset=q] = some[s][q] + old
