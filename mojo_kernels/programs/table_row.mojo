"""A row of a table that is an element-wise program, and the tiles of its space.

A row is int64 words, which `torch_max_backend.engines.steps.program_rows.encode` makes: `HEAD` words,
then the arrays that `Parts` finds.
"""

from std.math import ceildiv
from std.memory import Pointer
from std.utils.index import IndexList

from ..core.memory import Untracked
from ..core.team import parallelism_level
from .operations import Bytes

comptime Words = Pointer[Int64, Untracked]
comptime DIMS = 8
# Words of the head, and of each entry of the arrays, without strides.
comptime HEAD = 20
comptime FILL = 3
comptime INPUT = 4
comptime STEP = 6
comptime OUTPUT = 4
comptime TOTAL = 5
comptime ACROSS = 256
# Added to what reductions are asked to do where totals lie across (as in `reductions.mojo`).
comptime BESIDE = 8


@always_inline
def address(word: Int64) -> Bytes:
    var address = Int(word)
    return Pointer(to=address).unsafe_bitcast[Bytes]()[]


# Words of the head: 2 dims, 3 how many of the last are reduced, plus `ACROSS` where one dim that is
# kept comes behind those, 4 slots, 5 fills, 6 inputs, 7 those
# of them that are loaded once, 8 instructions that run once, 9 the others, 10 outputs,
# 11 reductions, 12 tiles of the dims that are not reduced, 13 those of the others, 14 tasks at
# most, 15 into how many parts reductions are split, 16 elements of a whole tile, 17 bytes of
# scratch where totals begin, 18 where the words of a fused function are: for each value that it
# reads the slot and whether it varies, for each that it writes the slot; 19 how many instructions of
# a tile are of what is the same all over it, which come first.
struct Parts(Movable):
    """Where the arrays of a row are."""

    var row: Words
    var dims: Int
    var reduced: Int
    # Whether one kept dim, which tiles have all of, comes behind the reduced ones.
    var across: Bool
    var sizes: Words
    var tiles: Words
    var slots: Words
    var fills: Words
    var inputs: Words
    var steps: Words
    var outputs: Words
    var totals: Words

    @always_inline
    def __init__(out self, row: Words):
        var dims = Int(row[unsafe_offset=2])
        var entry = INPUT + dims
        var steps = Int(row[unsafe_offset=8] + row[unsafe_offset=9])
        self.row = row
        self.dims = dims
        self.reduced = Int(row[unsafe_offset=3]) % ACROSS
        self.across = Int(row[unsafe_offset=3]) >= ACROSS
        self.sizes = row.unsafe_offset(HEAD)
        self.tiles = self.sizes.unsafe_offset(dims)
        self.slots = self.tiles.unsafe_offset(dims)
        self.fills = self.slots.unsafe_offset(Int(row[unsafe_offset=4]))
        self.inputs = self.fills.unsafe_offset(Int(row[unsafe_offset=5]) * FILL)
        self.steps = self.inputs.unsafe_offset(Int(row[unsafe_offset=6]) * entry)
        self.outputs = self.steps.unsafe_offset(steps * STEP)
        self.totals = self.outputs.unsafe_offset(Int(row[unsafe_offset=10]) * (OUTPUT + dims))

    @always_inline
    def count(self, word: Int) -> Int:
        return Int(self.row[unsafe_offset=word])

    @always_inline
    def mode(self, mode: Int) -> Int64:
        """What reductions are asked to do, with totals that lie as this row's."""
        return Int64(mode + BESIDE * Int(self.across))

    @always_inline
    def kept(self) -> Int:
        """How many dims come before the reduced ones."""
        return self.dims - self.reduced - Int(self.across)

    @always_inline
    def input(self, i: Int) -> Words:
        return self.inputs.unsafe_offset(i * (INPUT + self.dims))

    @always_inline
    def output(self, i: Int) -> Words:
        return self.outputs.unsafe_offset(i * (OUTPUT + self.dims))

    @always_inline
    def total(self, i: Int) -> Words:
        return self.totals.unsafe_offset(i * (TOTAL + self.dims))


@fieldwise_init
struct Extent(ImplicitlyCopyable, RegisterPassable):
    """A tile: where it begins and how large it is."""

    var start: IndexList[DIMS]
    var size: IndexList[DIMS]


@always_inline
def offset_of(parts: Parts, tile: Extent, strides: Words) -> Int:
    var result = 0
    for i in range(parts.dims):
        result += tile.start[i] * Int(strides[unsafe_offset=i])
    return result


@no_inline
def tile_at(parts: Parts, number: Int) -> Extent:
    """A tile by its number."""
    var start = IndexList[DIMS](0)
    var size = IndexList[DIMS](1)
    var rest = number
    for i in range(parts.dims - 1, -1, -1):
        var n = Int(parts.sizes[unsafe_offset=i])
        var tile = Int(parts.tiles[unsafe_offset=i])
        var at: Int
        if tile >= n:
            at = 0
        else:
            var tiles = ceildiv(n, tile)
            at = rest % tiles * tile
            rest = rest // tiles
        start[i] = at
        size[i] = min(tile, n - at)
    return {start, size}


@no_inline
def next_tile(parts: Parts, mut tile: Extent):
    for i in range(parts.dims - 1, -1, -1):
        var n = Int(parts.sizes[unsafe_offset=i])
        var length = Int(parts.tiles[unsafe_offset=i])
        if length >= n:
            continue
        var at = tile.start[i] + length
        if at < n:
            tile.start[i] = at
            tile.size[i] = min(length, n - at)
            return
        tile.start[i] = 0
        tile.size[i] = length


@always_inline
def strides_of(parts: Parts, words: Words) -> IndexList[DIMS]:
    var result = IndexList[DIMS](0)
    for i in range(parts.dims):
        result[i] = Int(words[unsafe_offset=i])
    return result


@always_inline
def dense_strides(parts: Parts, size: IndexList[DIMS]) -> IndexList[DIMS]:
    var result = IndexList[DIMS](0)
    var stride = 1
    for i in range(parts.dims - 1, -1, -1):
        result[i] = stride
        stride *= size[i]
    return result


@always_inline
def tasks_of_row(most: Int, units: Int) -> Int:
    """How many tasks to cut units into: four a thread, but at most `most`; one on a single thread."""
    if most <= 1:
        return 1
    var threads = parallelism_level(None)
    return min(min(most, units), 4 * threads) if threads > 1 else 1
