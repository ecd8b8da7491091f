"""Products of weights and what taps meet by tiles of pairs, where a CPU has them: the numbers that a
stretch of windows meets are copied to panels, whatever their offsets, and the rest is a block of
`gemm/bfloat16.mojo`."""

from std.math import ceildiv
from std.sys.intrinsics import masked_load

from ..core.memory import Address
from ..core.vectors import below
from ..gemm.bfloat16 import (
    BLOCK,
    DEPTH,
    SIDE,
    Half,
    Single,
    Tiles,
    Unit,
    multiply_block,
    part_of_block,
    write_block,
)
from .pairs import pair_rows
from .tiles import Offsets

# A word is a pair of channels of a tap.
comptime _Words = SIMD[DType.float32, SIDE]


@always_inline
def padded_depth(depth: Int) -> Int:
    """Words of so many pairs up to the end of the last tile."""
    comptime words = DEPTH // 2
    return ceildiv(depth, words) * words


@always_inline
def tiles_space(depth: Int, columns: Int) -> Int:
    """Words that `product_of_tiles` needs room for."""
    return ceildiv(columns, SIDE) * SIDE * padded_depth(depth) + BLOCK * BLOCK


def pack_pair_lines(
    to: Single, source: Half, row: Int, rows: Int, channels: Int, taps: Int
):
    """`pair_rows`, each row followed by zeros up to `padded_depth`. Writes up to a vector past the
    end."""
    var depth = ceildiv(channels, 2) * taps
    var whole = padded_depth(depth)
    for i in range(rows):
        var line = to.unsafe_offset(i * whole)
        pair_rows(line, source.unsafe_offset(i * row), row, 1, channels, taps)
        for p in range(depth, whole):
            line[unsafe_offset=p] = 0


@always_inline
def _panel(to: Single, right: Single, offsets: Offsets, depth: Int, columns: Int):
    """What up to 16 windows meet, with zeros where there is nothing."""
    if columns >= SIDE:
        for p in range(depth):
            var from_ = right.unsafe_offset(offsets[unsafe_offset=p])
            to.unsafe_store(p * SIDE, from_.unsafe_load[width=SIDE](0))
    else:
        for p in range(depth):
            var from_ = right.unsafe_offset(offsets[unsafe_offset=p])
            to.unsafe_store(
                p * SIDE, masked_load[SIDE](from_, below[SIDE](columns), _Words(0))
            )
    for p in range(depth, padded_depth(depth)):
        to.unsafe_store(p * SIDE, _Words(0))


@no_inline
def product_of_tiles[
    Kind: Unit & Deinitable = Tiles[]
](
    rows: Int,
    columns: Int,
    depth: Int,
    weights: Single,
    distance: Int,
    right: Single,
    offsets: Offsets,
    space: Single,
    c: Single,
    row: Int,
    added: Bool,
    again: Bool = False,
):
    """`c[rows, columns]` from rows of weights, `distance` words apart, whose last tile is whole, and
    what lies from `offsets` on; nothing past the last column is read or written. `space` is for
    `tiles_space` words. Weights that are used `again` are in the caches."""
    var whole = padded_depth(depth)
    var sums = space.unsafe_offset(ceildiv(columns, SIDE) * SIDE * whole)
    for j in range(0, columns, SIDE):
        var from_ = right.unsafe_offset(j)
        _panel(space.unsafe_offset(j * whole), from_, offsets, depth, columns - j)
    # Of the next block, how many lines are asked for with each block of columns.
    var each = ceildiv(BLOCK, ceildiv(columns, BLOCK))
    var unit = Kind()
    for i in range(0, rows, BLOCK):
        var high = min(BLOCK, rows - i)
        var lines = weights.unsafe_offset(i * distance).unsafe_bitcast[BFloat16]()
        var next = 0 if again or i + 2 * BLOCK > rows else each
        for j in range(0, columns, BLOCK):
            var wide = min(BLOCK, columns - j)
            var ahead = part_of_block(lines, 2 * distance, j // BLOCK, next)
            multiply_block(
                unit,
                high,
                wide,
                lines,
                2 * distance,
                space.unsafe_offset(j * whole).unsafe_bitcast[BFloat16](),
                2 * SIDE * whole,
                2 * whole,
                sums,
                ahead,
            )
            write_block(c.unsafe_offset(i * row + j), row, 1, sums, high, wide, added)
    unit.close()
