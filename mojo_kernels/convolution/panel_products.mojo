"""Products of weights that come from memory and are used once: a tile of them meets all columns before
the next one, which is brought nearer meanwhile. Columns are copied into panels, which stay in the
second-level cache."""

from std.math import ceildiv
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load, masked_store

from ..core.memory import Address
from ..core.vectors import MANY_REGISTERS, below, copy_line
from ..gemm.panels import WIDE, Ahead, Matrix, _high
from .finish import Finish
from .tiles import FEW, Offsets, copy_panels, pack_rows, tile_rows

# Steps between two times that memory is asked for.
comptime STEPS = 16
# Numbers of columns in panels: most of a second-level cache.
comptime COLUMNS = 131072 if MANY_REGISTERS else 81920


@always_inline
def _step[
    dtype: DType, width: Int, count: Int, //, high: Int, wide: Int
](mut sums: Array[SIMD[dtype, width], count], a: Address[dtype], b: Address[dtype]):
    """Adds the products of one column of weights and one row of numbers."""
    var right = Array[SIMD[dtype, width], wide](fill=SIMD[dtype, width](0))
    comptime for j in range(wide):
        right[j] = b.unsafe_load[width=width](j * width)
    comptime for i in range(high):
        var left = SIMD[dtype, width](a[unsafe_offset=i])
        comptime for j in range(wide):
            sums[i * wide + j] = left.fma(right[j], sums[i * wide + j])


@no_inline
def _tile[
    dtype: DType, //, high: Int, wide: Int
](
    a: Address[dtype],
    b: Address[dtype],
    depth: Int,
    c: Address[dtype],
    row: Int,
    columns: Int,
    added: Bool,
    mut ahead: Ahead[dtype],
    some: Int,
):
    """One tile of sums, of a panel of weights and `[depth, wide]` vectors of numbers. Of what is
    `ahead`, `some` cache lines are asked for at a time."""
    comptime width = simd_width_of[dtype]()
    var sums = Array[SIMD[dtype, width], high * wide](fill=SIMD[dtype, width](0))
    var ap = a
    var bp = b
    var coming = ahead
    for _ in range(depth // STEPS):
        comptime for u in range(STEPS):
            _step[high, wide](sums, ap.unsafe_offset(u * high), bp.unsafe_offset(u * wide * width))
        ap = ap.unsafe_offset(STEPS * high)
        bp = bp.unsafe_offset(STEPS * wide * width)
        coming.bring(some)
    for _ in range(depth % STEPS):
        _step[high, wide](sums, ap, bp)
        ap = ap.unsafe_offset(high)
        bp = bp.unsafe_offset(wide * width)
    ahead = coming
    if columns == wide * width:
        comptime for i in range(high):
            comptime for j in range(wide):
                var v = sums[i * wide + j]
                var to = c.unsafe_offset(i * row + j * width)
                if added:
                    v += to.unsafe_load[width=width](0)
                to.unsafe_store(0, v)
        return
    comptime for i in range(high):
        comptime for j in range(wide):
            var to = c.unsafe_offset(i * row + j * width)
            var v = sums[i * wide + j]
            var inside = below[width](columns - j * width)
            if added:
                v += masked_load[width](to, inside, SIMD[dtype, width](0))
            masked_store[width](v, to, inside)


@no_inline
def _few[
    dtype: DType, //, columns: Int
](
    high: Int,
    a: Address[dtype],
    b: Address[dtype],
    depth: Int,
    c: Address[dtype],
    row: Int,
    added: Bool,
):
    """Sums of a panel of `high` rows of weights and `[depth, columns]` numbers, of vectors of outputs.
    Reads past the panel, up to the highest one's rows."""
    comptime width = simd_width_of[dtype]()
    comptime vectors = ceildiv(_high(), width)
    # As many chains of sums as hide how long one takes.
    comptime chains = max(1, FEW // (columns * vectors))
    comptime each = columns * vectors
    var sums = Array[SIMD[dtype, width], chains * each](fill=SIMD[dtype, width](0))
    var p = 0
    while p < depth:
        comptime for u in range(chains):
            if p + u < depth:
                comptime for v in range(vectors):
                    var left = a.unsafe_load[width=width]((p + u) * high + v * width)
                    comptime for j in range(columns):
                        var right = SIMD[dtype, width](b[unsafe_offset = (p + u) * columns + j])
                        comptime k = u * each + v * columns + j
                        sums[k] = left.fma(right, sums[k])
        p += chains
    comptime for v in range(vectors):
        comptime for j in range(columns):
            var sum = sums[v * columns + j]
            comptime for u in range(1, chains):
                sum += sums[u * each + v * columns + j]
            comptime for lane in range(width):
                if v * width + lane < high:
                    var at = (v * width + lane) * row + j
                    if added:
                        sum[lane] += c[unsafe_offset=at]
                    c[unsafe_offset=at] = sum[lane]


@always_inline
def _copy_rest[
    dtype: DType, //
](to: Address[dtype], from_: Address[dtype], offsets: Offsets, depth: Int, rest: Int, room: Int):
    """Copies the last columns to `[depth, room]`, with zeros behind them."""
    for p in range(depth):
        var line = to.unsafe_offset(p * room)
        copy_line(line, from_.unsafe_offset(offsets[unsafe_offset=p]), 1, rest)
        for j in range(rest, room):
            line[unsafe_offset=j] = 0


@always_inline
def panel_stretch[panel: Int](depth: Int) -> Int:
    """Columns for which `product_of_panels` has room."""
    return max(1, COLUMNS // (depth * panel)) * panel


@always_inline
def panel_space[panel: Int](depth: Int) -> Int:
    """Numbers of the space of `product_of_panels`, for that depth or less."""
    return max(COLUMNS, depth * panel)


@no_inline
def product_of_panels[
    dtype: DType, //
](
    rows: Int,
    columns: Int,
    depth: Int,
    weights: Address[dtype],
    distance: Int,
    packed: Bool,
    tile: Address[dtype],
    right: Address[dtype],
    offsets: Offsets,
    space: Address[dtype],
    c: Address[dtype],
    row: Int,
    added: Bool,
    finish: Finish[dtype],
    channel: Int,
    position: Int,
):
    """`c[rows, columns]` from weights and what lies from `offsets` on; nothing past the last column is
    read or written. The weights are `packed` by `pack_rows`, or rows that lie `distance` apart, which
    are packed into `tile` a tile at a time. `space` is for `panel_space` numbers. Each tile of sums, of
    outputs from `channel` on for `position` of the result, is finished while it is in the cache."""
    comptime width = simd_width_of[dtype]()
    comptime panel = WIDE * width
    var count = columns // panel
    var done = count * panel
    var rest = columns - done
    var vectors = ceildiv(rest, width) if rest > FEW else 0
    copy_panels(space, right, offsets, depth, count)
    var last = space.unsafe_offset(done * depth)
    if rest != 0:
        var room = vectors * width if vectors != 0 else rest
        _copy_rest(last, right.unsafe_offset(done), offsets, depth, rest, room)
    var i = 0
    while i < rows:
        var high = tile_rows(rows - i)
        var panels = tile
        if packed:
            panels = weights.unsafe_offset(i * depth)
        else:
            pack_rows(tile, weights.unsafe_offset(i * distance), distance, high, depth)
        var to = c.unsafe_offset(i * row)
        comptime for k in range(1, _high() + 1):
            if high == k:
                # The next tile's weights: as they lie, or a panel, which is one row.
                var next = Matrix(weights.unsafe_offset((i + k) * distance), distance, 1)
                var lines = min(k, rows - i - k)
                var size = depth
                if packed:
                    next = Matrix(panels.unsafe_offset(k * depth), 0, 1)
                    lines = 1
                    size = k * depth
                var ahead = Ahead(next, lines, size, 0, 1, 1)
                var some = ceildiv(ahead.left, max(1, count * (depth // STEPS)))
                for n in range(count):
                    _tile[k, WIDE](
                        panels,
                        space.unsafe_offset(n * panel * depth),
                        depth,
                        to.unsafe_offset(n * panel),
                        row,
                        panel,
                        added,
                        ahead,
                        some,
                    )
                var behind = to.unsafe_offset(done)
                comptime for wide in range(1, WIDE + 1):
                    if vectors == wide:
                        _tile[k, wide](panels, last, depth, behind, row, rest, added, ahead, some)
        if vectors == 0:
            comptime for some in range(1, FEW + 1):
                if rest == some:
                    _few[some](high, panels, last, depth, to.unsafe_offset(done), row, added)
        if not finish.idle():
            for line in range(high):
                var sum = to.unsafe_offset(line * row)
                finish.apply(sum, sum, channel + i + line, position + (i + line) * row, columns)
        i += high
