"""Sums over the taps of windows as tiles that stay in registers: some outputs of some vectors of
neighbouring windows. The weights are copied into panels as in `gemm/panels.mojo`; the images are read
where they lie, from an offset for each tap."""

from std.math import ceildiv
from std.memory import bitcast
from std.sys import simd_width_of, size_of

from ..core.memory import Address, Untracked
from ..core.vectors import MANY_REGISTERS, copy_line
from ..gemm.panels import WIDE, _high, transpose
from .pairs import accumulated, times

# Columns that are fewer than a vector are made alone if they are no more than these.
comptime FEW = 4
# Rows for which a copy of the columns costs little beside what it saves: where columns lie, their
# lines are as many pages, and begin anywhere in the lines of a cache.
comptime MANY_ROWS = 96 if MANY_REGISTERS else 32
# Numbers of columns that are multiplied with all rows in turn: they stay in the first-level cache,
# or where they are copied in the second-level cache.
comptime STRETCH = 8192
comptime COPIED = 32768
comptime Offsets = Pointer[Int, Untracked]


@always_inline
def tile_rows(left: Int) -> Int:
    """Rows of the next tile where so many are left: tiles are about as high as each other."""
    return ceildiv(left, ceildiv(left, _high()))


@no_inline
def pack_rows[
    dtype: DType
](to: Address[dtype], source: Address[dtype], row: Int, rows: Int, depth: Int):
    """Copies `[rows, depth]`, `row` the distance of rows, into a panel for each tile: of each
    column the tile's rows side by side. Writes up to a vector past the end."""
    comptime width = simd_width_of[dtype]()
    comptime chunks = ceildiv(_high(), width)
    var first = 0
    while first < rows:
        var count = tile_rows(rows - first)
        var panel = to.unsafe_offset(first * depth)
        var lines = source.unsafe_offset(first * row)
        var done = depth // width * width
        # What a vector writes past its column, the next one overwrites.
        for p in range(0, done, width):
            comptime for turn in range(chunks):
                comptime chunk = (chunks - 1 - turn) * width
                if chunk < count:
                    var block = Array[SIMD[dtype, width], width](fill=SIMD[dtype, width](0))
                    comptime for j in range(width):
                        if chunk + j < count:
                            block[j] = lines.unsafe_load[width=width]((chunk + j) * row + p)
                    transpose(block)
                    comptime for j in range(width):
                        panel.unsafe_store[width=width]((p + j) * count + chunk, block[j])
        for p in range(done, depth):
            for j in range(count):
                panel[unsafe_offset = p * count + j] = lines[unsafe_offset = j * row + p]
        first += count


@always_inline
def _half[dtype: DType](words: Address[dtype], position: Int, count: Int) -> SIMD[DType.uint32, 16]:
    """The half at a `position` of each of 16 rows, counted in halves, of columns of `count` words."""
    var word = words.unsafe_bitcast[UInt32]().unsafe_load[width=16](position // 2 * count)
    return word >> UInt32(position % 2 * 16)


@no_inline
def pack_pairs[
    dtype: DType
](
    to: Address[dtype],
    words: Address[dtype],
    distance: Int,
    rows: Int,
    depth: Int,
    taps: Int,
    space: Address[dtype],
):
    """`pack_rows` of pairs of neighbouring channels, from rows of words that hold two numbers of
    16 bits each, of one channel after the other. `space` is for a tile and a vector."""
    comptime assert size_of[Scalar[dtype]]() == 4, "words have 32 bits"
    comptime low = SIMD[DType.uint32, 16](0xFFFF)
    var first = 0
    while first < rows:
        var count = tile_rows(rows - first)
        pack_rows(space, words.unsafe_offset(first * distance), distance, count, depth)
        var panel = to.unsafe_offset(first * depth).unsafe_bitcast[UInt32]()
        for begun in range(0, depth, taps):
            # What a vector writes past its column, the next one overwrites.
            for tap in range(taps):
                var one = _half(space, 2 * begun + tap, count) & low
                var other = _half(space, 2 * begun + taps + tap, count) << 16
                panel.unsafe_store((begun + tap) * count, one | other)
        first += count


@no_inline
def _tiles[
    dtype: DType, //, high: Int, wide: Int, listed: Bool, pairs: Bool
](
    count: Int,
    a: Address[dtype],
    b: Address[dtype],
    offsets: Offsets,
    depth: Int,
    c: Address[dtype],
    row: Int,
    added: Bool,
):
    """`count` neighbouring tiles."""
    comptime width = simd_width_of[dtype]()
    for n in range(count):
        var sums = Array[SIMD[dtype, width], high * wide](fill=SIMD[dtype, width](0))
        var ap = a
        var start = b.unsafe_offset(n * wide * width * (1 if listed else depth))
        for p in range(depth):
            var bp: Address[dtype]
            comptime if listed:
                bp = start.unsafe_offset(offsets[unsafe_offset=p])
            else:
                bp = start.unsafe_offset(p * wide * width)
            var right = Array[SIMD[dtype, width], wide](fill=SIMD[dtype, width](0))
            comptime for j in range(wide):
                right[j] = bp.unsafe_load[width=width](j * width)
            comptime for i in range(high):
                var left = SIMD[dtype, width](ap[unsafe_offset=i])
                comptime for j in range(wide):
                    sums[i * wide + j] = accumulated[pairs](left, right[j], sums[i * wide + j])
            ap = ap.unsafe_offset(high)
        var to = c.unsafe_offset(n * wide * width)
        if added:
            comptime for i in range(high):
                comptime for j in range(wide):
                    sums[i * wide + j] += to.unsafe_load[width=width](i * row + j * width)
        comptime for i in range(high):
            comptime for j in range(wide):
                to.unsafe_store[width=width](i * row + j * width, sums[i * wide + j])


@always_inline
def tiles[
    dtype: DType, //, wide: Int, listed: Bool, pairs: Bool = False
](
    count: Int,
    rows: Int,
    a: Address[dtype],
    b: Address[dtype],
    offsets: Offsets,
    depth: Int,
    c: Address[dtype],
    row: Int,
    added: Bool,
):
    """`c[rows, count]`, `count` in units of `wide` vectors, from the panels of `pack_rows`; `b`
    lies in panels too or, if `listed`, from an offset on for each step. `added` to what is there."""
    var i = 0
    while i < rows:
        var high = tile_rows(rows - i)
        var panel = a.unsafe_offset(i * depth)
        var to = c.unsafe_offset(i * row)
        comptime for k in range(1, _high() + 1):
            if high == k:
                _tiles[k, wide, listed, pairs](count, panel, b, offsets, depth, to, row, added)
        i += high


@no_inline
def _dots[
    dtype: DType, //, high: Int, pairs: Bool
](
    columns: Int,
    depth: Int,
    weights: Address[dtype],
    distance: Int,
    right: Address[dtype],
    c: Address[dtype],
    row: Int,
    added: Bool,
):
    comptime width = simd_width_of[dtype]()
    for column in range(columns):
        var numbers = right.unsafe_offset(column * depth)
        var sums = Array[SIMD[dtype, width], high](fill=SIMD[dtype, width](0))
        var p = 0
        while p + width <= depth:
            var v = numbers.unsafe_load[width=width](p)
            comptime for i in range(high):
                var left = weights.unsafe_load[width=width](i * distance + p)
                sums[i] = accumulated[pairs](left, v, sums[i])
            p += width
        comptime for i in range(high):
            var sum = sums[i].reduce_add()
            for rest in range(p, depth):
                var left = weights[unsafe_offset = i * distance + rest]
                sum += times[pairs](left, numbers[unsafe_offset=rest])
            if added:
                sum += c[unsafe_offset = i * row + column]
            c[unsafe_offset = i * row + column] = sum


@no_inline
def few_columns[
    dtype: DType, //, pairs: Bool
](
    rows: Int,
    columns: Int,
    depth: Int,
    weights: Address[dtype],
    distance: Int,
    right: Address[dtype],
    offsets: Offsets,
    space: Address[dtype],
    c: Address[dtype],
    row: Int,
    added: Bool,
    taps: Int,
):
    """`c[rows, columns]` from rows of weights `distance` apart, where a vector of columns would be
    nearly empty; `space` for `columns * depth` numbers."""
    comptime some = 4
    for column in range(columns):
        var numbers = space.unsafe_offset(column * depth)
        for p in range(depth):
            var v = right[unsafe_offset = offsets[unsafe_offset=p] + column]
            comptime if pairs:
                # As the weights lie: the taps of a channel, then those of the next one.
                var at = 2 * p - p % taps
                var halves = numbers.unsafe_bitcast[UInt16]()
                var both = bitcast[DType.uint16, 2](v.cast[DType.float32]())
                halves[unsafe_offset=at] = both[0]
                halves[unsafe_offset = at + taps] = both[1]
            else:
                numbers[unsafe_offset=p] = v
    var i = 0
    while i < rows:
        var lines = weights.unsafe_offset(i * distance)
        var to = c.unsafe_offset(i * row)
        if rows - i >= some:
            _dots[some, pairs](columns, depth, lines, distance, space, to, row, added)
            i += some
        else:
            _dots[1, pairs](columns, depth, lines, distance, space, to, row, added)
            i += 1


@no_inline
def copy_panels[
    dtype: DType, //
](to: Address[dtype], from_: Address[dtype], offsets: Offsets, depth: Int, count: Int):
    """Copies `count` neighbouring panels of columns, each `[depth, panel]`."""
    comptime width = simd_width_of[dtype]()
    comptime panel = WIDE * width
    for p in range(depth):
        var line = from_.unsafe_offset(offsets[unsafe_offset=p])
        for n in range(count):
            comptime for j in range(WIDE):
                to.unsafe_store[width=width](
                    (n * depth + p) * panel + j * width,
                    line.unsafe_load[width=width](n * panel + j * width),
                )


@no_inline
def product_of_taps[
    dtype: DType, //, pairs: Bool = False
](
    rows: Int,
    columns: Int,
    depth: Int,
    weights: Address[dtype],
    distance: Int,
    left: Address[dtype],
    right: Address[dtype],
    offsets: Offsets,
    space: Address[dtype],
    c: Address[dtype],
    row: Int,
    added: Bool,
    taps: Int,
):
    """`c[rows, columns]` from weights, also in the panels `left`, and what lies from `offsets` on;
    nothing past the last column is read or written. `space` is for `space_size` numbers. The
    numbers of `taps` neighbours are of one channel, and after them come the next one's."""
    comptime width = simd_width_of[dtype]()
    comptime panel = WIDE * width
    var done = columns // panel * panel
    if not copies[pairs](rows):
        tiles[WIDE, True, pairs](done // panel, rows, left, right, offsets, depth, c, row, added)
    else:
        copy_panels(space, right, offsets, depth, done // panel)
        for at in range(0, done, panel):
            # One at a time stays in the first-level cache for all rows.
            var copied = space.unsafe_offset(at * depth)
            tiles[WIDE, False](1, rows, left, copied, offsets, depth, c.unsafe_offset(at), row, added)
    if columns - done >= width:
        var to = c.unsafe_offset(done)
        var from_ = right.unsafe_offset(done)
        tiles[1, True, pairs](1, rows, left, from_, offsets, depth, to, row, added)
        done += width
    var rest = columns - done
    if rest == 0:
        return
    var from_ = right.unsafe_offset(done)
    var to = c.unsafe_offset(done)
    if rest <= FEW:
        few_columns[pairs](
            rows, rest, depth, weights, distance, from_, offsets, space, to, row, added, taps
        )
        return
    var sums = space.unsafe_offset(depth * width)
    for p in range(depth):
        copy_line(
            space.unsafe_offset(p * width),
            from_.unsafe_offset(offsets[unsafe_offset=p]),
            1,
            rest,
        )
    tiles[1, False, pairs](1, rows, left, space, offsets, depth, sums, width, False)
    for i in range(rows):
        for j in range(rest):
            var v = sums[unsafe_offset = i * width + j]
            if added:
                v += to[unsafe_offset = i * row + j]
            to[unsafe_offset = i * row + j] = v


@always_inline
def copies[pairs: Bool](rows: Int) -> Bool:
    """Whether `product_of_taps` copies columns before it multiplies so many rows."""
    return not pairs and rows >= MANY_ROWS


@always_inline
def space_size[dtype: DType, pairs: Bool](rows: Int, depth: Int) -> Int:
    """Numbers that `product_of_taps` needs room for, with no more than `stretch` columns, of so many
    rows and such a depth or less: the stretch of a lower depth is longer."""
    comptime width = simd_width_of[dtype]()
    var copied = max(COPIED, WIDE * width * depth) if copies[pairs](rows) else 0
    return max(copied, (rows + max(depth, FEW * depth // width + 1)) * width)


@always_inline
def stretch[panel: Int, pairs: Bool](rows: Int, depth: Int) -> Int:
    """Columns that all rows of weights are multiplied with in turn, in panels: those of a depth of
    `depth` stay in a cache."""
    var numbers = COPIED if copies[pairs](rows) else STRETCH
    return max(1, numbers // (depth * panel)) * panel
