"""Matrix products on the calling thread, in panels that stay in its caches.

After Goto and van de Geijn, "Anatomy of High-Performance Matrix
Multiplication": both operands are copied into panels which the innermost loop
reads from end to end, and a tile of the result stays in registers."""

from std.bit import log2_floor
from std.math import ceildiv, iota
from std.memory import Pointer
from std.sys import CompilationTarget, simd_width_of, size_of
from std.sys.intrinsics import PrefetchOptions, masked_load, masked_store, prefetch

from ..core.memory import CACHE_LINE, Address, line_start, spare, untracked
from ..core.vectors import MANY_REGISTERS
from ..mathematics.float8 import widened

# Steps along the inner dimension at a time: two panels fit the first cache.
comptime DEPTH = 384
# Columns of the right operand at a time: its panels fit the second cache.
comptime COLUMNS = 1024
# Vectors a tile of the result is wide.
comptime WIDE = 2
# Tiles of rows of the left operand at a time.
comptime TILES = 16
# Rows of the left operand whose panels `left_size` has room for.
comptime TALL = TILES * _high()
# Rows of lower tiles, for what is left of the rows.
comptime MIDDLE = 8 if _high() > 8 else 4
comptime LOW = MIDDLE // 2
# Bytes of a right operand that stays in the second cache.
comptime NEAR = 256 * 1024
# Whether rows of the left operand are read where they lie if that is all they are needed for: there
# are registers for the addresses of 6 rows, not for those of 14.
comptime DIRECT = not MANY_REGISTERS
# Steps of a tile between two times that it asks for memory, and steps of one turn of its loop: a
# step of the 6 rows that 16 registers hold takes so little time that both would show.
comptime STRETCH = 4 if MANY_REGISTERS else 32
comptime UNROLLED = 1 if MANY_REGISTERS else 4


@always_inline
def _high() -> Int:
    """Rows of a tile: as many as leave registers for the operands."""
    comptime if CompilationTarget.has_avx512f():
        return 14
    elif CompilationTarget.has_neon():
        return 12
    else:
        return 6


struct Matrix[dtype: DType](TrivialRegisterPassable):
    """Numbers in memory, `row` and `column` the distances of neighbours."""

    var start: Address[Self.dtype]
    var row: Int
    var column: Int

    @always_inline
    def __init__(out self, start: Address[Self.dtype], row: Int, column: Int):
        """The matrix that begins at `start`."""
        self.start = untracked(start)
        self.row = row
        self.column = column

    @always_inline
    def at(self, row: Int, column: Int) -> Address[Self.dtype]:
        """The address of a number."""
        return untracked(self.start.unsafe_offset(
            row * self.row + column * self.column
        ))

    @always_inline
    def from_(self, row: Int, column: Int) -> Self:
        """The part that begins there."""
        return Self(self.at(row, column), self.row, self.column)

    @always_inline
    def turned(self) -> Self:
        """The transposed matrix."""
        return Self(self.at(0, 0), self.column, self.row)


@always_inline
def transpose[
    dtype: DType, width: Int, //
](mut rows: Array[SIMD[dtype, width], width]):
    """Transposes `width` vectors: each round interleaves the two halves."""

    comptime if CompilationTarget.is_x86() and width == 8:
        _transpose_eight(rows)
        return
    elif CompilationTarget.is_x86() and width == 4:
        _transpose_four(rows)
        return
    comptime for _ in range(log2_floor(width)):
        var next = Array[SIMD[dtype, width], width](fill=SIMD[dtype, width](0))
        comptime for i in range(width // 2):
            var both = rows[i].interleave(rows[i + width // 2])
            next[2 * i] = both.slice[width, offset=0]()
            next[2 * i + 1] = both.slice[width, offset=width]()
        rows = next^


@always_inline
def _transpose_eight[
    dtype: DType, width: Int, //
](mut rows: Array[SIMD[dtype, width], width]):
    """`transpose` of 8 vectors. AVX2 interleaves the halves of vectors by themselves in half the time:
    once those of rows four apart are side by side, none has to leave its place."""
    comptime assert width == 8, "halves of 4"
    var next = Array[SIMD[dtype, width], width](fill=SIMD[dtype, width](0))
    comptime for part in range(2):
        var four = Array[SIMD[dtype, width], 4](fill=SIMD[dtype, width](0))
        comptime for i in range(4):
            comptime if part == 0:
                four[i] = rows[i].shuffle[0, 1, 2, 3, 8, 9, 10, 11](rows[i + 4])
            else:
                four[i] = rows[i].shuffle[4, 5, 6, 7, 12, 13, 14, 15](rows[i + 4])
        comptime for turn in range(2):
            var ones: SIMD[dtype, width]
            var twos: SIMD[dtype, width]
            comptime if turn == 0:
                ones = four[0].shuffle[0, 8, 1, 9, 4, 12, 5, 13](four[1])
                twos = four[2].shuffle[0, 8, 1, 9, 4, 12, 5, 13](four[3])
            else:
                ones = four[0].shuffle[2, 10, 3, 11, 6, 14, 7, 15](four[1])
                twos = four[2].shuffle[2, 10, 3, 11, 6, 14, 7, 15](four[3])
            next[4 * part + 2 * turn] = ones.shuffle[0, 1, 8, 9, 4, 5, 12, 13](twos)
            next[4 * part + 2 * turn + 1] = ones.shuffle[2, 3, 10, 11, 6, 7, 14, 15](twos)
    rows = next^


@always_inline
def _transpose_four[
    dtype: DType, width: Int, //
](mut rows: Array[SIMD[dtype, width], width]):
    """`_transpose_eight` of 4 vectors."""
    comptime assert width == 4, "halves of 2"
    var low0 = rows[0].shuffle[0, 1, 4, 5](rows[2])
    var low1 = rows[1].shuffle[0, 1, 4, 5](rows[3])
    var high0 = rows[0].shuffle[2, 3, 6, 7](rows[2])
    var high1 = rows[1].shuffle[2, 3, 6, 7](rows[3])
    rows[0] = low0.shuffle[0, 4, 2, 6](low1)
    rows[1] = low0.shuffle[1, 5, 3, 7](low1)
    rows[2] = high0.shuffle[0, 4, 2, 6](high1)
    rows[3] = high0.shuffle[1, 5, 3, 7](high1)


@always_inline
def pack[
    dtype: DType, sum: DType, //, panel: Int
](to: Address[sum], source: Matrix[dtype], lines: Int, depth: Int):
    """Copies `[lines, depth]` into panels of `panel` lines, in each the lines
    side by side; zeros fill up the last. Writes up to a vector past the end."""
    comptime width = simd_width_of[sum]()
    for first in range(0, lines, panel):
        var block = to.unsafe_offset(first * depth)
        var count = min(panel, lines - first)
        if source.row == 1 and count == panel:
            for p in range(depth):
                var line = source.at(first, p)
                comptime for j in range(0, panel // width * width, width):
                    block.unsafe_store[width=width](
                        p * panel + j, widened[sum](line.unsafe_load[width=width](j))
                    )
                comptime for j in range(panel // width * width, panel):
                    block[unsafe_offset = p * panel + j] = widened[sum](line[unsafe_offset=j])
            continue
        var done = 0
        comptime if width <= 16:
            if source.column == 1:
                done = depth // width * width
        # What the last vector of a line writes past it, the next line overwrites.
        for p in range(0, done, width):
            comptime for turn in range(ceildiv(panel, width)):
                comptime chunk = (ceildiv(panel, width) - 1 - turn) * width
                var rows = Array[SIMD[sum, width], width](fill=SIMD[sum, width](0))
                comptime for j in range(min(width, panel - chunk)):
                    if chunk + j < count:
                        rows[j] = widened[sum](
                            source.at(first + chunk + j, p).unsafe_load[width=width](0)
                        )
                transpose(rows)
                comptime for j in range(width):
                    block.unsafe_store[width=width]((p + j) * panel + chunk, rows[j])
        for p in range(done, depth):
            for j in range(count):
                block[unsafe_offset = p * panel + j] = widened[sum](source.at(first + j, p)[])
            for j in range(count, panel):
                block[unsafe_offset = p * panel + j] = 0


struct Ahead[dtype: DType](TrivialRegisterPassable):
    """Memory to bring into the second cache while a tile is computed: a share
    of what is copied next."""

    var matrix: Matrix[Self.dtype]
    var across: Bool
    var size: Int
    var line: Int
    var at: Int
    var left: Int

    @always_inline
    def __init__(
        out self,
        matrix: Matrix[Self.dtype],
        depth: Int,
        columns: Int,
        first: Int,
        last: Int,
        shares: Int,
    ):
        """Shares `first` to `last` of `shares` of `matrix[depth, columns]`."""
        self.matrix = matrix
        self.across = matrix.column == 1
        self.size = 0
        self.line = 0
        self.at = 0
        self.left = 0
        if columns == 0:
            # The divisions would take a tenth of a small tile's time.
            return
        var lines = depth if self.across else columns
        self.size = columns if self.across else depth
        self.line = first * lines // shares
        var end = min(last, shares) * lines // shares
        self.left = (end - self.line) * ceildiv(self.size, CACHE_LINE // size_of[Scalar[Self.dtype]]())

    @always_inline
    def bring(mut self, some: Int):
        """Asks for the next cache lines."""
        for _ in range(min(some, self.left)):
            var row = self.line if self.across else self.at
            var column = self.at if self.across else self.line
            prefetch[PrefetchOptions().for_read().medium_locality().to_data_cache()](
                self.matrix.at(row, column)
            )
            self.at += CACHE_LINE // size_of[Scalar[Self.dtype]]()
            if self.at >= self.size:
                self.at = 0
                self.line += 1
        self.left = max(0, self.left - some)


@always_inline
def _add_step[
    dtype: DType, right_type: DType, width: Int, count: Int, high: Int, //
](
    mut sums: Array[SIMD[dtype, width], count],
    lines: Array[Address[dtype], high],
    at: Int,
    b: Address[right_type],
):
    """Adds the products of one column of the left operand and one row of the right one."""
    var right = Array[SIMD[dtype, width], WIDE](fill=SIMD[dtype, width](0))
    comptime for j in range(WIDE):
        right[j] = widened[dtype](b.unsafe_load[width=width](j * width))
    comptime for i in range(high):
        var left = SIMD[dtype, width](lines[i][unsafe_offset=at])
        comptime for j in range(WIDE):
            sums[i * WIDE + j] = left.fma(right[j], sums[i * WIDE + j])


# In a function of its own the sums stay in registers whatever is around the call.
@no_inline
def _tile[
    dtype: DType, right_type: DType, next: DType, //, high: Int, direct: Bool = False
](
    a: Address[dtype],
    left_row: Int,
    b: Address[right_type],
    right_row: Int,
    depth: Int,
    c: Address[dtype],
    row: Int,
    rows: Int,
    columns: Int,
    added: Bool,
    var ahead: Ahead[next],
):
    """One tile of the result from a panel of the left operand, or if `direct` from its `rows`, which
    lie `left_row` apart, and rows of the right one, which lie `right_row` apart; `added` to what is
    there."""
    comptime width = simd_width_of[dtype]()
    var sums = Array[SIMD[dtype, width], high * WIDE](fill=SIMD[dtype, width](0))
    # The numbers of a step lie side by side in a panel, and in lines of their own elsewhere.
    comptime apart = 1 if direct else high
    var lines = Array[Address[dtype], high](fill=a)
    comptime for i in range(high):
        comptime if direct:
            # What is behind the last row counts for nothing.
            lines[i] = a.unsafe_offset(min(i, rows - 1) * left_row)
        else:
            lines[i] = a.unsafe_offset(i)
    var at = 0
    var bp = b
    var some = 0 if ahead.left == 0 else ceildiv(ahead.left * STRETCH, depth)
    # Stretches of a length that is known at run time only would have AVX-512's tile spill its sums.
    for begun in range(0, depth, STRETCH):
        var steps = min(STRETCH, depth - begun)
        for _ in range(steps // UNROLLED):
            comptime for u in range(UNROLLED):
                _add_step(sums, lines, at + u * apart, bp)
                bp = bp.unsafe_offset(right_row)
            at += UNROLLED * apart
        for _ in range(steps % UNROLLED):
            _add_step(sums, lines, at, bp)
            at += apart
            bp = bp.unsafe_offset(right_row)
        ahead.bring(some)
    if rows == high and columns == WIDE * width:
        comptime for i in range(high):
            comptime for j in range(WIDE):
                var v = sums[i * WIDE + j]
                if added:
                    v += c.unsafe_load[width=width](i * row + j * width)
                c.unsafe_store[width=width](i * row + j * width, v)
        return
    comptime for i in range(high):
        if i < rows:
            comptime for j in range(WIDE):
                var inside = iota[DType.int32, width]().lt(Int32(columns - j * width))
                var to = c.unsafe_offset(i * row + j * width)
                var v = sums[i * WIDE + j]
                if added:
                    v += masked_load[width](to, inside, SIMD[dtype, width](0))
                masked_store[width](v, to, inside)


@always_inline
def left_size(m: Int, depth: Int) -> Int:
    """Elements of the left operand's panels."""
    comptime high = _high()
    return min(TILES * high, ceildiv(m, high) * high) * depth


@always_inline
def right_size[sum: DType](n: Int, depth: Int) -> Int:
    """Elements of the right operand's panels."""
    comptime panel = WIDE * simd_width_of[sum]()
    return min(COLUMNS, ceildiv(n, panel) * panel) * depth


@always_inline
def _height(rows: Int) -> Int:
    """Rows of the next tile where so many are left: of three heights, so that
    few rows of a tile are idle."""
    comptime high = _high()
    # Two lower tiles rather than a high one and next to nothing.
    if rows > high and rows <= 2 * MIDDLE:
        return MIDDLE
    if rows > high - high // 7:
        return high
    return MIDDLE if rows > LOW else LOW


@always_inline
def pack_left[
    dtype: DType, sum: DType, //
](
    to: Address[sum],
    source: Matrix[dtype],
    rows: Int,
    depth: Int,
    parts: Int = 1,
    apart: Int = 0,
):
    """Copies rows into a panel for each tile: `depth` numbers of each of some `parts`, which lie
    `apart`."""
    comptime high = _high()
    var i = 0
    while i < rows:
        var height = _height(rows - i)
        var count = min(height, rows - i)
        for part in range(parts):
            var panel = to.unsafe_offset(i * depth * parts + part * depth * height)
            var from_ = Matrix[dtype](
                source.at(i, 0).unsafe_offset(part * apart), source.row, source.column
            )
            if height == high:
                pack[high](panel, from_, count, depth)
            elif height == MIDDLE:
                pack[MIDDLE](panel, from_, count, depth)
            else:
                pack[LOW](panel, from_, count, depth)
        i += height


@always_inline
def tiles[
    dtype: DType, right_type: DType, next: DType, //, direct: Bool = False
](
    rows: Int,
    columns: Int,
    depth: Int,
    left: Address[dtype],
    right: Address[right_type],
    right_row: Int,
    c: Address[dtype],
    row: Int,
    added: Bool,
    following: Matrix[next],
    next_columns: Int,
    left_row: Int = 0,
):
    """The tiles of one panel of the right operand, whose rows lie `right_row` apart, while the
    `following` one comes nearer. `left` has panels, or if `direct` rows that lie `left_row`
    apart."""
    comptime high = _high()
    var i = 0
    while i < rows:
        var height = _height(rows - i)
        var ahead = Ahead(following, depth, next_columns, i, i + height, rows)
        var count = min(height, rows - i)
        var panel = left.unsafe_offset(i * (left_row if direct else depth))
        var to = c.unsafe_offset(i * row)
        if height == high:
            _tile[high, direct](
                panel, left_row, right, right_row, depth, to, row, count, columns, added, ahead
            )
        elif height == MIDDLE:
            _tile[MIDDLE, direct](
                panel, left_row, right, right_row, depth, to, row, count, columns, added, ahead
            )
        else:
            _tile[LOW, direct](
                panel, left_row, right, right_row, depth, to, row, count, columns, added, ahead
            )
        i += height


@no_inline
def packed_product[
    a_type: DType, sum: DType, //
](
    m: Int,
    columns: Int,
    depth: Int,
    a: Matrix[a_type],
    left: Address[sum],
    right: Address[sum],
    c: Address[sum],
    row: Int,
    added: Bool,
):
    """`c[m, columns] = a[m, depth] b`, or added to what is there, of a `b` in
    panels `right`; `left` is space for panels of `a`."""
    comptime panel = WIDE * simd_width_of[sum]()
    for i in range(0, m, TALL):
        var rows = min(TALL, m - i)
        pack_left(left, a.from_(i, 0), rows, depth)
        for j in range(0, columns, panel):
            tiles(
                rows,
                min(panel, columns - j),
                depth,
                left,
                right.unsafe_offset(j * depth),
                panel,
                c.unsafe_offset(i * row + j),
                row,
                added,
                a,
                0,
            )


@always_inline
def reads_once(m: Int) -> Bool:
    """Whether `product` uses up each panel of the right operand while it is in the first cache,
    and asks for the next one meanwhile: for not too many rows."""
    return m <= TALL


@no_inline
def product[
    a_type: DType, b_type: DType, sum: DType, //
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[a_type],
    b: Matrix[b_type],
    c: Address[sum],
    row: Int,
    added: Bool = False,
):
    """`c[m, n] = a[m, k] b[k, n]`, or added to what is there; `row` the distance
    of rows of `c`."""
    comptime width = simd_width_of[sum]()
    comptime panel = WIDE * width
    if k == 0:
        if not added:
            for i in range(m):
                for j in range(n):
                    c[unsafe_offset = i * row + j] = 0
        return
    var once = reads_once(m)
    var packed = True
    comptime if DIRECT and a_type == sum:
        packed = not once or a.column != 1
    comptime more = width + spare[sum]()
    var left = List[Scalar[sum]](
        unsafe_uninit_length=left_size(m, min(DEPTH, k)) + more if packed else 0
    )
    var right = List[Scalar[sum]](
        unsafe_uninit_length=right_size[sum](panel if once else n, min(DEPTH, k)) + more
    )
    var lp = line_start(left.unsafe_ptr())
    var rp = line_start(right.unsafe_ptr())
    if once:
        # What is in the second cache already need not come nearer.
        var near = n * k * size_of[Scalar[b_type]]() <= NEAR
        for p in range(0, k, DEPTH):
            var depth = min(DEPTH, k - p)
            if packed:
                pack_left(lp, a.from_(0, p), m, depth)
            for j in range(0, n, panel):
                var columns = min(panel, n - j)
                pack[panel](rp, b.from_(p, j).turned(), columns, depth)
                var next_columns = 0 if near else min(panel, max(0, n - j - panel))
                var following = b.from_(p, j + panel)
                var to = c.unsafe_offset(j)
                var adds = added or p != 0
                comptime if DIRECT and a_type == sum:
                    if not packed:
                        tiles[True](
                            m,
                            columns,
                            depth,
                            rebind[Address[sum]](a.at(0, p)),
                            rp,
                            panel,
                            to,
                            row,
                            adds,
                            following,
                            next_columns,
                            a.row,
                        )
                        continue
                tiles(
                    m, columns, depth, lp, rp, panel, to, row, adds, following, next_columns
                )
    else:
        for j in range(0, n, COLUMNS):
            var columns = min(COLUMNS, n - j)
            for p in range(0, k, DEPTH):
                var depth = min(DEPTH, k - p)
                pack[panel](rp, b.from_(p, j).turned(), columns, depth)
                packed_product(
                    m,
                    columns,
                    depth,
                    a.from_(0, p),
                    lp,
                    rp,
                    c.unsafe_offset(j),
                    row,
                    added or p != 0,
                )
    _ = left^
    _ = right^
