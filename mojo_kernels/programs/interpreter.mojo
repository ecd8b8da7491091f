"""The interpreter of element-wise programs: a row of a table says which operations to run on blocks
of tensors.

The space is cut into tiles; what a tile has of a tensor is a block: its elements one after the
other, in place where they lie so, else in scratch memory. Blocks have a slot each, and an
instruction calls a block function on the blocks of slots.
"""

from std.math import ceildiv
from std.memory import Pointer, unsafe_stack_allocation
from std.utils.index import IndexList

from ..core.memory import untracked
from ..core.team import in_ranges
from .copies import UNIFORM, bits_of, copy_tile, spread
from .table_row import (
    Bytes,
    DIMS,
    Extent,
    FILL,
    INPUT,
    OUTPUT,
    Parts,
    STEP,
    TOTAL,
    Words,
    address,
    dense_strides,
    next_tile,
    offset_of,
    strides_of,
    tasks_of_row,
    tile_at,
)

comptime Function = def(Bytes, Bytes, Bytes, Bytes, Int64, Int64) thin abi("C") -> None
# Reduces rows of a block: the totals, the block, rows, their length, what to do.
comptime Reduction = def(Bytes, Bytes, Int64, Int64, Int64) thin abi("C") -> None
# All instructions of a tile at once: the row, the addresses of blocks, elements.
comptime Block = def(Words, Words, Int64) thin abi("C") -> None

# Bytes of a task's blocks, and the most slots.
comptime SCRATCH = 65536
comptime SLOTS = 256
# Bytes of a reduction's total.
comptime ACCUMULATOR = 16

# How an input gets into its slot, and whether it stays there for all tiles.
comptime IN_PLACE = 0
comptime SPREAD = 1
comptime COPIED = 2
# How a slot gets into an output: it lies there, is copied there, is everywhere the same, or is an
# input that is copied straight.
comptime THERE = 0
comptime COPY = 1
comptime SAME = 2
comptime STRAIGHT = 3
# A block that is made of a slot that is the same everywhere, for a reduction.
comptime EXPAND = 4
# What a reduction is asked to do.
comptime BEGIN = 0
comptime ADD = 1
comptime MERGE = 2
comptime END = 3
# The results of whole rows, with the distance of the results above these bits.
comptime WHOLE = 4


@always_inline
def _function(word: Words) -> Function:
    return word.unsafe_bitcast[Function]()[]


@no_inline
def _load(parts: Parts, input: Words, tile: Extent, at: Words):
    """Puts an input's block into its slot."""
    var bytes = Int(input[unsafe_offset=3])
    var strides = input.unsafe_offset(INPUT)
    var source = address(input[]).unsafe_offset(offset_of(parts, tile, strides) * bytes)
    var slot = Int(input[unsafe_offset=2])
    var mode = input[unsafe_offset=1]
    if mode == IN_PLACE:
        at[unsafe_offset=slot] = Int64(Int(source))
    elif mode == SPREAD:
        spread(bytes, address(at[unsafe_offset=slot]), bits_of(bytes, source))
    elif mode == COPIED:
        copy_tile(
            bytes, parts.dims, tile.size, address(at[unsafe_offset=slot]),
            dense_strides(parts, tile.size), source, strides_of(parts, strides),
        )


@always_inline
def _step(step: Words, at: Words, n: Int64):
    var to = address(at[unsafe_offset = Int(step[unsafe_offset=1])])
    var a = address(at[unsafe_offset = Int(step[unsafe_offset=2])])
    var b = address(at[unsafe_offset = Int(step[unsafe_offset=3])])
    var c = address(at[unsafe_offset = Int(step[unsafe_offset=4])])
    var flags = step[unsafe_offset=5]
    # A block that is the same everywhere is computed once.
    _function(step)(to, a, b, c, Int64(UNIFORM) if flags & 8 != 0 else n, flags & 7)


@no_inline
def _tile(parts: Parts, tile: Extent, at: Words, fused: Int64):
    """All of a tile but its reductions."""
    var n = 1
    for i in range(parts.dims):
        n *= tile.size[i]
    for i in range(parts.count(7), parts.count(6)):
        _load(parts, parts.input(i), tile, at)
    var outputs = parts.count(10)
    for i in range(outputs):
        var output = parts.output(i)
        if output[unsafe_offset=1] == THERE:
            var bytes = Int(output[unsafe_offset=3])
            var place = offset_of(parts, tile, output.unsafe_offset(OUTPUT)) * bytes
            at[unsafe_offset = Int(output[unsafe_offset=2])] = output[] + Int64(place)
    var step = parts.steps.unsafe_offset(parts.count(8) * STEP)
    for _ in range(parts.count(9) if fused == 0 else parts.count(19)):
        _step(step, at, Int64(n))
        step = step.unsafe_offset(STEP)
    if fused != 0:
        var address = fused
        Pointer(to=address).unsafe_bitcast[Block]()[](parts.row, at, Int64(n))
    for i in range(outputs):
        var output = parts.output(i)
        var mode = output[unsafe_offset=1]
        if mode == THERE:
            continue
        var bytes = Int(output[unsafe_offset=3])
        var slot = Int(output[unsafe_offset=2])
        var strides = output.unsafe_offset(OUTPUT)
        if mode == EXPAND:
            copy_tile(
                bytes, parts.dims, tile.size, address(at[unsafe_offset = Int(output[])]),
                dense_strides(parts, tile.size), address(at[unsafe_offset=slot]), IndexList[DIMS](0),
            )
            continue
        var to = address(output[]).unsafe_offset(offset_of(parts, tile, strides) * bytes)
        var source: Bytes
        var source_strides = IndexList[DIMS](0)
        if mode == STRAIGHT:
            var input = parts.input(slot)
            source_strides = strides_of(parts, input.unsafe_offset(INPUT))
            var place = offset_of(parts, tile, input.unsafe_offset(INPUT)) * bytes
            source = address(input[]).unsafe_offset(place)
        else:
            source = address(at[unsafe_offset=slot])
            if mode == COPY:
                source_strides = dense_strides(parts, tile.size)
        copy_tile(
            bytes, parts.dims, tile.size, to, strides_of(parts, strides), source, source_strides
        )


@always_inline
def _reduction(total: Words) -> Reduction:
    return total.unsafe_bitcast[Reduction]()[]


@always_inline
def _accumulators(parts: Parts, tile: Extent) -> Int:
    """Positions of a tile that are not reduced."""
    var rows = 1
    for i in range(parts.kept()):
        rows *= tile.size[i]
    return rows * tile.size[parts.dims - 1] if parts.across else rows


@always_inline
def _reduced(parts: Parts, tile: Extent) -> Int:
    """Elements of a tile for each of these positions."""
    var n = 1
    for i in range(parts.kept(), parts.kept() + parts.reduced):
        n *= tile.size[i]
    return n


@always_inline
def _most_accumulators(parts: Parts) -> Int:
    """Those of a whole tile."""
    var most = 1
    for i in range(parts.kept()):
        most *= Int(parts.tiles[unsafe_offset=i])
    return most * Int(parts.tiles[unsafe_offset = parts.dims - 1]) if parts.across else most


@no_inline
def _write_totals(parts: Parts, tile: Extent, totals: Bytes, most: Int):
    """Writes the results of a tile's reductions."""
    var rows = _accumulators(parts, tile)
    var last = parts.dims - 1
    for k in range(parts.count(11)):
        var total = parts.total(k)
        var strides = total.unsafe_offset(TOTAL)
        var bytes = Int(total[unsafe_offset=3])
        var mine = totals.unsafe_offset(k * most * ACCUMULATOR)
        for i in range(rows):
            var place = 0
            var rest = i
            if parts.across:
                place = rest % tile.size[last] * Int(strides[unsafe_offset=last])
                rest = rest // tile.size[last]
            for d in range(parts.kept() - 1, -1, -1):
                var at = tile.start[d] + rest % tile.size[d]
                rest = rest // tile.size[d]
                place += at * Int(strides[unsafe_offset=d])
            var to = address(total[unsafe_offset=4]).unsafe_offset(place * bytes)
            if parts.across:
                _reduction(total)(mine, to, Int64(rows), Int64(i), parts.mode(END))
            else:
                _reduction(total)(mine.unsafe_offset(i * ACCUMULATOR), to, 1, 0, END)


@no_inline
def _whole(parts: Parts, tile: Extent, at: Words, totals: Bytes, most: Int):
    """The reductions of rows that a tile has all of."""
    var rows = _accumulators(parts, tile)
    var kept = parts.kept()
    var n = _reduced(parts, tile)
    # The dim along which there are several rows, if it is one only.
    var along = -1
    var several = 0
    for i in range(kept):
        if tile.size[i] > 1:
            along = i
            several += 1
    for k in range(parts.count(11)):
        var total = parts.total(k)
        var block = address(at[unsafe_offset = Int(total[unsafe_offset=1])])
        if several > 1:
            var mine = totals.unsafe_offset(k * most * ACCUMULATOR)
            _reduction(total)(mine, mine, Int64(rows), 0, BEGIN)
            _reduction(total)(mine, block, Int64(rows), Int64(n), ADD)
            continue
        var strides = total.unsafe_offset(TOTAL)
        var place = 0
        for i in range(kept):
            place += tile.start[i] * Int(strides[unsafe_offset=i])
        var step = strides[unsafe_offset=along] if along >= 0 else 0
        var to = address(total[unsafe_offset=4]).unsafe_offset(
            place * Int(total[unsafe_offset=3])
        )
        _reduction(total)(to, block, Int64(rows), Int64(n), WHOLE + 8 * step)
    if several > 1:
        _write_totals(parts, tile, totals, most)


@no_inline
def _units(row: Words, first: Int, end: Int, shared: Bytes, fused: Int64):
    """Runs the tiles of a task, or the parts of the reductions of tiles."""
    var parts = Parts(row)
    var scratch = untracked(unsafe_stack_allocation[SCRATCH, Int8, alignment=64]())
    var at = untracked(unsafe_stack_allocation[SLOTS, Int64]())
    var base = Int64(Int(scratch))
    for i in range(parts.count(4)):
        at[unsafe_offset=i] = base + parts.slots[unsafe_offset=i]
    var fill = parts.fills
    for _ in range(parts.count(5)):
        var to = address(at[unsafe_offset = Int(fill[])])
        spread(Int(fill[unsafe_offset=2]), to, fill[unsafe_offset=1])
        fill = fill.unsafe_offset(FILL)
    var inner = parts.count(13)
    var splits = parts.count(15)
    var tile = tile_at(parts, first // splits * inner)
    for i in range(parts.count(7)):
        _load(parts, parts.input(i), tile_at(parts, 0), at)
    var step = parts.steps
    for _ in range(parts.count(8)):
        _step(step, at, Int64(parts.count(16)))
        step = step.unsafe_offset(STEP)
    if parts.count(11) == 0:
        for unit in range(first, end):
            _tile(parts, tile, at, fused)
            if unit + 1 < end:
                next_tile(parts, tile)
        return
    # Totals of all positions of a whole tile that are not reduced.
    var most = _most_accumulators(parts)
    var reductions = parts.count(11)
    var own = scratch.unsafe_offset(parts.count(17))
    if inner == 1 and splits == 1 and not parts.across:
        for unit in range(first, end):
            _tile(parts, tile, at, fused)
            _whole(parts, tile, at, own, most)
            if unit + 1 < end:
                next_tile(parts, tile)
        return
    for unit in range(first, end):
        var part = unit % splits
        var length = ceildiv(inner, splits)
        var begin = min(inner, part * length)
        var stop = min(inner, begin + length)
        tile = tile_at(parts, unit // splits * inner + begin)
        var rows = _accumulators(parts, tile)
        var totals = own
        if splits > 1:
            totals = shared.unsafe_offset(unit * reductions * most * ACCUMULATOR)
        for k in range(reductions):
            var mine = totals.unsafe_offset(k * most * ACCUMULATOR)
            _reduction(parts.total(k))(mine, mine, Int64(rows), 0, parts.mode(BEGIN))
        for _ in range(begin, stop):
            _tile(parts, tile, at, fused)
            var n = _reduced(parts, tile)
            for k in range(reductions):
                var total = parts.total(k)
                var mine = totals.unsafe_offset(k * most * ACCUMULATOR)
                var block = address(at[unsafe_offset = Int(total[unsafe_offset=1])])
                _reduction(total)(mine, block, Int64(rows), Int64(n), parts.mode(ADD))
            next_tile(parts, tile)
        if splits == 1:
            tile = tile_at(parts, unit * inner)
            _write_totals(parts, tile, totals, most)


@always_inline
def block_of(at: Words, slots: Words, word: Int) -> Bytes:
    """The block of the slot that a word tells."""
    return address(at[unsafe_offset = Int(slots[unsafe_offset=word])])


def run(row: Words, block: Block):
    """Runs a program with a function for all instructions of a tile."""
    var function = block
    run(row, Pointer(to=function).unsafe_bitcast[Int64]()[])


def run(row: Words, fused: Int64 = 0):
    """Runs a program."""
    var parts = Parts(row)
    var splits = parts.count(15)
    var units = parts.count(12) * splits
    if units == 0:
        return
    var tasks = tasks_of_row(parts.count(14), units)
    if splits == 1 and tasks <= 1:
        _units(row, 0, units, row.unsafe_bitcast[Int8](), fused)
        return
    var most = _most_accumulators(parts)
    var each = parts.count(11) * most * ACCUMULATOR
    var memory = List[Int64](length=units * each // 8 if splits > 1 else 1, fill=0)
    var shared = untracked(memory.unsafe_ptr().unsafe_bitcast[Int8]())

    def work(lower: Int, upper: Int) {var row, var shared, var fused}:
        if lower < upper:
            _units(row, lower, upper, shared, fused)

    in_ranges(work, units, tasks)
    if splits > 1:
        var inner = parts.count(13)
        for outer in range(parts.count(12)):
            var tile = tile_at(parts, outer * inner)
            var rows = _accumulators(parts, tile)
            var first = shared.unsafe_offset(outer * splits * each)
            for part in range(1, splits):
                var other = shared.unsafe_offset((outer * splits + part) * each)
                for k in range(parts.count(11)):
                    var place = k * most * ACCUMULATOR
                    _reduction(parts.total(k))(
                        first.unsafe_offset(place), other.unsafe_offset(place), Int64(rows), 0,
                        parts.mode(MERGE),
                    )
            _write_totals(parts, tile, first, most)
    _ = memory^
