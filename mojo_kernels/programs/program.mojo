"""Element-wise programs: rows of a table that say which operations to run on blocks of tensors.

A row is int64 words, which `torch_max_backend.engines.steps.program_rows.encode` makes: `HEAD` words,
then the arrays that `Parts` finds. The space is cut into tiles; what a tile has of a tensor is a
block: its elements one after the other, in place where they lie so, else in scratch memory. Blocks
have a slot each, and an instruction calls a block function on the blocks of slots.
"""

from std.math import ceildiv
from std.memory import Pointer, unsafe_memcpy, unsafe_stack_allocation
from std.utils.index import IndexList

from ..core.memory import Untracked
from ..core.team import parallelism_level, sync_parallelize

comptime Words = Pointer[Int64, Untracked]
comptime Bytes = Pointer[Int8, Untracked]
comptime Function = def(Bytes, Bytes, Bytes, Bytes, Int64, Int64) thin abi("C") -> None
# Reduces rows of a block: the totals, the block, rows, their length, what to do.
comptime Reduction = def(Bytes, Bytes, Int64, Int64, Int64) thin abi("C") -> None
# All instructions of a tile at once: the row, the addresses of blocks, elements.
comptime Block = def(Words, Words, Int64) thin abi("C") -> None

comptime DIMS = 8
# Words of the head, and of each entry of the arrays, without strides.
comptime HEAD = 20
comptime FILL = 3
comptime INPUT = 4
comptime STEP = 6
comptime OUTPUT = 4
comptime TOTAL = 5
# Bytes of a task's blocks, and the most slots.
comptime SCRATCH = 65536
comptime SLOTS = 256
# Elements of a value that is the same everywhere.
comptime UNIFORM = 64
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
def _address(word: Int64) -> Bytes:
    var address = Int(word)
    return Pointer(to=address).unsafe_bitcast[Bytes]()[]


@always_inline
def _function(word: Words) -> Function:
    return word.unsafe_bitcast[Function]()[]


struct Parts(Movable):
    """Where the arrays of a row are."""

    var row: Words
    var dims: Int
    var reduced: Int
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
        self.reduced = Int(row[unsafe_offset=3])
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
    def input(self, i: Int) -> Words:
        return self.inputs.unsafe_offset(i * (INPUT + self.dims))

    @always_inline
    def output(self, i: Int) -> Words:
        return self.outputs.unsafe_offset(i * (OUTPUT + self.dims))

    @always_inline
    def total(self, i: Int) -> Words:
        return self.totals.unsafe_offset(i * (TOTAL + self.dims))

# Words of the head: 2 dims, 3 how many of the last are reduced, 4 slots, 5 fills, 6 inputs, 7 those
# of them that are loaded once, 8 instructions that run once, 9 the others, 10 outputs,
# 11 reductions, 12 tiles of the dims that are not reduced, 13 those of the others, 14 tasks at
# most, 15 into how many parts reductions are split, 16 elements of a whole tile, 17 bytes of
# scratch where totals begin, 18 where the words of a fused function are: for each value that it
# reads the slot and whether it varies, for each that it writes the slot; 19 how many instructions of
# a tile are of what is the same all over it, which come first.


@fieldwise_init
struct Extent(ImplicitlyCopyable, RegisterPassable):
    """A tile: where it begins and how large it is."""

    var start: IndexList[DIMS]
    var size: IndexList[DIMS]


@always_inline
def _offset(parts: Parts, tile: Extent, strides: Words) -> Int:
    var result = 0
    for i in range(parts.dims):
        result += tile.start[i] * Int(strides[unsafe_offset=i])
    return result


@no_inline
def _extent(parts: Parts, number: Int) -> Extent:
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
def _next(parts: Parts, mut tile: Extent):
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


# Copies


@fieldwise_init
struct Plane(ImplicitlyCopyable, RegisterPassable):
    """A matrix and its strides, in elements, where it is copied to and where it comes from."""

    var rows: Int
    var columns: Int
    var to_row: Int
    var to_column: Int
    var row: Int
    var column: Int


@no_inline
def copy_plane[dtype: DType](to: Bytes, source: Bytes, p: Plane):
    var rows = p.rows
    var columns = p.columns
    var to_row = p.to_row
    var to_column = p.to_column
    var row = p.row
    var column = p.column
    var t = to.unsafe_bitcast[Scalar[dtype]]()
    var s = source.unsafe_bitcast[Scalar[dtype]]()
    comptime w = 16
    if to_column == 1 and column == 1:
        for i in range(rows):
            _line(t.unsafe_offset(i * to_row), s.unsafe_offset(i * row), columns)
    elif to_column == 1 and column == 0:
        for i in range(rows):
            var line = t.unsafe_offset(i * to_row)
            var value = SIMD[dtype, w](s[unsafe_offset = i * row])
            var j = 0
            while j + w <= columns:
                line.unsafe_store(j, value)
                j += w
            while j < columns:
                line[unsafe_offset=j] = value[0]
                j += 1
    elif to_column == 1 and row == 1:
        var i = 0
        while i < rows:
            var count = min(w, rows - i)
            _transposed(
                t.unsafe_offset(i * to_row), s.unsafe_offset(i), count, columns, to_row, column
            )
            i += w
    else:
        for i in range(rows):
            var line = t.unsafe_offset(i * to_row)
            var from_line = s.unsafe_offset(i * row)
            for j in range(columns):
                line[unsafe_offset = j * to_column] = from_line[unsafe_offset = j * column]


@always_inline
def _line[
    dtype: DType
](t: Pointer[Scalar[dtype], Untracked], s: Pointer[Scalar[dtype], Untracked], n: Int):
    comptime w = 16
    var j = 0
    while j + w <= n:
        t.unsafe_store(j, s.unsafe_load[width=w](j))
        j += w
    while j < n:
        t[unsafe_offset=j] = s[unsafe_offset=j]
        j += 1


@no_inline
def _transposed[
    dtype: DType
](
    t: Pointer[Scalar[dtype], Untracked],
    s: Pointer[Scalar[dtype], Untracked],
    rows: Int,
    columns: Int,
    to_row: Int,
    column: Int,
):
    """`rows` neighbours of the source at each of `columns` places, as rows."""
    comptime w = 16
    var j = 0
    while j + w <= columns and rows == w:
        var block = Array[SIMD[dtype, w], w](fill=0)
        comptime for k in range(w):
            block[k] = s.unsafe_load[width=w]((j + k) * column)
        # Shuffling the first half of the rows into the second, as often as w halves.
        comptime for _ in range(4):
            var shuffled = Array[SIMD[dtype, w], w](fill=0)
            comptime for k in range(w // 2):
                var pair = block[k].interleave(block[k + w // 2])
                shuffled[2 * k] = pair.slice[w]()
                shuffled[2 * k + 1] = pair.slice[w, offset=w]()
            block = shuffled^
        comptime for i in range(w):
            t.unsafe_store(i * to_row + j, block[i])
        j += w
    while j < columns:
        for i in range(rows):
            t[unsafe_offset = i * to_row + j] = s[unsafe_offset = j * column + i]
        j += 1


@no_inline
def _plane(bytes: Int, to: Bytes, source: Bytes, plane: Plane):
    """A matrix of any strides into one of any."""
    var p = plane
    if p.to_column != 1 and p.to_row == 1:
        p = Plane(
            p.columns, p.rows, p.to_column, p.to_row, p.column, p.row
        )
    if bytes == 4:
        copy_plane[DType.uint32](to, source, p)
    elif bytes == 1:
        copy_plane[DType.uint8](to, source, p)
    elif bytes == 8:
        copy_plane[DType.uint64](to, source, p)
    else:
        copy_plane[DType.uint16](to, source, p)


@no_inline
def _copy_tile(
    bytes: Int,
    dims: Int,
    size: IndexList[DIMS],
    to: Bytes,
    to_strides: IndexList[DIMS],
    source: Bytes,
    strides: IndexList[DIMS],
):
    """A tile from strides to strides."""
    # Its dims that have more than one element, merged where both lie so.
    var n = IndexList[DIMS](1)
    var t = IndexList[DIMS](0)
    var s = IndexList[DIMS](0)
    var count = 0
    for i in range(dims):
        if size[i] == 1:
            continue
        if count > 0 and t[count - 1] == to_strides[i] * size[i] and s[
            count - 1
        ] == strides[i] * size[i]:
            n[count - 1] *= size[i]
            t[count - 1] = to_strides[i]
            s[count - 1] = strides[i]
            continue
        n[count] = size[i]
        t[count] = to_strides[i]
        s[count] = strides[i]
        count += 1
    if count == 0:
        _plane(bytes, to, source, Plane(1, 1, 0, 1, 0, 1))
        return
    var columns = count - 1
    if count == 1:
        if t[0] == 1 and s[0] == 1:
            unsafe_memcpy(dest=to, src=source, count=n[0] * bytes)
            return
        _plane(bytes, to, source, Plane(1, n[0], 0, t[0], 0, s[0]))
        return
    var rows = count - 2
    var outer = 1
    for i in range(rows):
        outer *= n[i]
    var at = IndexList[DIMS](0)
    var to_at = 0
    var from_at = 0
    for _ in range(outer):
        _plane(
            bytes,
            to.unsafe_offset(to_at * bytes),
            source.unsafe_offset(from_at * bytes),
            Plane(n[rows], n[columns], t[rows], t[columns], s[rows], s[columns]),
        )
        for i in range(rows - 1, -1, -1):
            at[i] += 1
            to_at += t[i]
            from_at += s[i]
            if at[i] < n[i]:
                break
            to_at -= n[i] * t[i]
            from_at -= n[i] * s[i]
            at[i] = 0


@always_inline
def _list(parts: Parts, words: Words) -> IndexList[DIMS]:
    var result = IndexList[DIMS](0)
    for i in range(parts.dims):
        result[i] = Int(words[unsafe_offset=i])
    return result


@always_inline
def _dense(parts: Parts, size: IndexList[DIMS]) -> IndexList[DIMS]:
    var result = IndexList[DIMS](0)
    var stride = 1
    for i in range(parts.dims - 1, -1, -1):
        result[i] = stride
        stride *= size[i]
    return result


@no_inline
def spread(bytes: Int, to: Bytes, bits: Int64):
    """Makes `UNIFORM` elements the same."""
    if bytes == 4:
        _filled[DType.uint32](to, bits)
    elif bytes == 1:
        _filled[DType.uint8](to, bits)
    elif bytes == 8:
        _filled[DType.uint64](to, bits)
    else:
        _filled[DType.uint16](to, bits)


@always_inline
def _filled[dtype: DType](to: Bytes, bits: Int64):
    var value = SIMD[dtype, UNIFORM](bits.cast[dtype]())
    to.unsafe_bitcast[Scalar[dtype]]().unsafe_store(0, value)


@always_inline
def _bits(bytes: Int, p: Bytes) -> Int64:
    if bytes == 4:
        return p.unsafe_bitcast[Int32]()[].cast[DType.int64]()
    if bytes == 8:
        return p.unsafe_bitcast[Int64]()[]
    if bytes == 1:
        return p[].cast[DType.int64]()
    return p.unsafe_bitcast[Int16]()[].cast[DType.int64]()


# Running


@no_inline
def _load(parts: Parts, input: Words, tile: Extent, at: Words):
    """Puts an input's block into its slot."""
    var bytes = Int(input[unsafe_offset=3])
    var strides = input.unsafe_offset(INPUT)
    var source = _address(input[]).unsafe_offset(_offset(parts, tile, strides) * bytes)
    var slot = Int(input[unsafe_offset=2])
    var mode = input[unsafe_offset=1]
    if mode == IN_PLACE:
        at[unsafe_offset=slot] = Int64(Int(source))
    elif mode == SPREAD:
        spread(bytes, _address(at[unsafe_offset=slot]), _bits(bytes, source))
    elif mode == COPIED:
        _copy_tile(
            bytes, parts.dims, tile.size, _address(at[unsafe_offset=slot]),
            _dense(parts, tile.size), source, _list(parts, strides),
        )


@always_inline
def _step(step: Words, at: Words, n: Int64):
    var to = _address(at[unsafe_offset = Int(step[unsafe_offset=1])])
    var a = _address(at[unsafe_offset = Int(step[unsafe_offset=2])])
    var b = _address(at[unsafe_offset = Int(step[unsafe_offset=3])])
    var c = _address(at[unsafe_offset = Int(step[unsafe_offset=4])])
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
            var place = _offset(parts, tile, output.unsafe_offset(OUTPUT)) * bytes
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
            _copy_tile(
                bytes, parts.dims, tile.size, _address(at[unsafe_offset = Int(output[])]),
                _dense(parts, tile.size), _address(at[unsafe_offset=slot]), IndexList[DIMS](0),
            )
            continue
        var to = _address(output[]).unsafe_offset(_offset(parts, tile, strides) * bytes)
        var source: Bytes
        var source_strides = IndexList[DIMS](0)
        if mode == STRAIGHT:
            var input = parts.input(slot)
            source_strides = _list(parts, input.unsafe_offset(INPUT))
            var place = _offset(parts, tile, input.unsafe_offset(INPUT)) * bytes
            source = _address(input[]).unsafe_offset(place)
        else:
            source = _address(at[unsafe_offset=slot])
            if mode == COPY:
                source_strides = _dense(parts, tile.size)
        _copy_tile(
            bytes, parts.dims, tile.size, to, _list(parts, strides), source, source_strides
        )


@always_inline
def _reduction(total: Words) -> Reduction:
    return total.unsafe_bitcast[Reduction]()[]


@always_inline
def _accumulators(parts: Parts, tile: Extent) -> Int:
    """Positions of a tile that are not reduced."""
    var rows = 1
    for i in range(parts.dims - parts.reduced):
        rows *= tile.size[i]
    return rows


@no_inline
def _write_totals(parts: Parts, tile: Extent, totals: Bytes, most: Int):
    """Writes the results of a tile's reductions."""
    var rows = _accumulators(parts, tile)
    var kept = parts.dims - parts.reduced
    for k in range(parts.count(11)):
        var total = parts.total(k)
        var strides = total.unsafe_offset(TOTAL)
        var bytes = Int(total[unsafe_offset=3])
        var mine = totals.unsafe_offset(k * most * ACCUMULATOR)
        for i in range(rows):
            var place = 0
            var rest = i
            for d in range(kept - 1, -1, -1):
                var at = tile.start[d] + rest % tile.size[d]
                rest = rest // tile.size[d]
                place += at * Int(strides[unsafe_offset=d])
            var to = _address(total[unsafe_offset=4]).unsafe_offset(place * bytes)
            _reduction(total)(mine.unsafe_offset(i * ACCUMULATOR), to, 1, 0, END)


@no_inline
def _whole(parts: Parts, tile: Extent, at: Words, totals: Bytes, most: Int):
    """The reductions of rows that a tile has all of."""
    var rows = _accumulators(parts, tile)
    var kept = parts.dims - parts.reduced
    var n = 1
    for i in range(kept, parts.dims):
        n *= tile.size[i]
    # The dim along which there are several rows, if it is one only.
    var along = -1
    var several = 0
    for i in range(kept):
        if tile.size[i] > 1:
            along = i
            several += 1
    for k in range(parts.count(11)):
        var total = parts.total(k)
        var block = _address(at[unsafe_offset = Int(total[unsafe_offset=1])])
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
        var to = _address(total[unsafe_offset=4]).unsafe_offset(
            place * Int(total[unsafe_offset=3])
        )
        _reduction(total)(to, block, Int64(rows), Int64(n), WHOLE + 8 * step)
    if several > 1:
        _write_totals(parts, tile, totals, most)


@no_inline
def _units(row: Words, first: Int, end: Int, shared: Bytes, fused: Int64):
    """Runs the tiles of a task, or the parts of the reductions of tiles."""
    var parts = Parts(row)
    var scratch = unsafe_stack_allocation[SCRATCH, Int8, alignment=64]().unsafe_origin_cast[
        Untracked
    ]()
    var at = unsafe_stack_allocation[SLOTS, Int64]().unsafe_origin_cast[Untracked]()
    var base = Int64(Int(scratch))
    for i in range(parts.count(4)):
        at[unsafe_offset=i] = base + parts.slots[unsafe_offset=i]
    var fill = parts.fills
    for _ in range(parts.count(5)):
        var to = _address(at[unsafe_offset = Int(fill[])])
        spread(Int(fill[unsafe_offset=2]), to, fill[unsafe_offset=1])
        fill = fill.unsafe_offset(FILL)
    var inner = parts.count(13)
    var splits = parts.count(15)
    var tile = _extent(parts, first // splits * inner)
    for i in range(parts.count(7)):
        _load(parts, parts.input(i), _extent(parts, 0), at)
    var step = parts.steps
    for _ in range(parts.count(8)):
        _step(step, at, Int64(parts.count(16)))
        step = step.unsafe_offset(STEP)
    if parts.count(11) == 0:
        for unit in range(first, end):
            _tile(parts, tile, at, fused)
            if unit + 1 < end:
                _next(parts, tile)
        return
    # Totals of all positions of a whole tile that are not reduced.
    var most = 1
    for i in range(parts.dims - parts.reduced):
        most *= Int(parts.tiles[unsafe_offset=i])
    var reductions = parts.count(11)
    var own = scratch.unsafe_offset(parts.count(17))
    if inner == 1 and splits == 1:
        for unit in range(first, end):
            _tile(parts, tile, at, fused)
            _whole(parts, tile, at, own, most)
            if unit + 1 < end:
                _next(parts, tile)
        return
    for unit in range(first, end):
        var part = unit % splits
        var length = ceildiv(inner, splits)
        var begin = min(inner, part * length)
        var stop = min(inner, begin + length)
        tile = _extent(parts, unit // splits * inner + begin)
        var rows = _accumulators(parts, tile)
        var totals = own
        if splits > 1:
            totals = shared.unsafe_offset(unit * reductions * most * ACCUMULATOR)
        for k in range(reductions):
            var mine = totals.unsafe_offset(k * most * ACCUMULATOR)
            _reduction(parts.total(k))(mine, mine, Int64(rows), 0, BEGIN)
        for _ in range(begin, stop):
            _tile(parts, tile, at, fused)
            var n = 1
            for i in range(parts.dims - parts.reduced, parts.dims):
                n *= tile.size[i]
            for k in range(reductions):
                var total = parts.total(k)
                var mine = totals.unsafe_offset(k * most * ACCUMULATOR)
                var block = _address(at[unsafe_offset = Int(total[unsafe_offset=1])])
                _reduction(total)(mine, block, Int64(rows), Int64(n), ADD)
            _next(parts, tile)
        if splits == 1:
            tile = _extent(parts, unit * inner)
            _write_totals(parts, tile, totals, most)


@always_inline
def block_of(at: Words, slots: Words, word: Int) -> Bytes:
    """The block of the slot that a word tells."""
    return _address(at[unsafe_offset = Int(slots[unsafe_offset=word])])


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
    var tasks = 1
    if parts.count(14) > 1:
        var threads = parallelism_level(None)
        if threads > 1:
            tasks = min(min(parts.count(14), units), 4 * threads)
    if splits == 1 and tasks <= 1:
        _units(row, 0, units, row.unsafe_bitcast[Int8](), fused)
        return
    var most = 1
    for i in range(parts.dims - parts.reduced):
        most *= Int(parts.tiles[unsafe_offset=i])
    var each = parts.count(11) * most * ACCUMULATOR
    var memory = List[Int64](length=units * each // 8 if splits > 1 else 1, fill=0)
    var shared = memory.unsafe_ptr().unsafe_bitcast[Int8]().unsafe_origin_cast[Untracked]()
    var chunk = ceildiv(units, tasks)
    tasks = ceildiv(units, chunk)

    def work(task: Int) {var row, var chunk, var units, var shared, var fused}:
        _units(row, task * chunk, min(units, (task + 1) * chunk), shared, fused)

    sync_parallelize(work, tasks)
    if splits > 1:
        var inner = parts.count(13)
        for outer in range(parts.count(12)):
            var tile = _extent(parts, outer * inner)
            var rows = _accumulators(parts, tile)
            var first = shared.unsafe_offset(outer * splits * each)
            for part in range(1, splits):
                var other = shared.unsafe_offset((outer * splits + part) * each)
                for k in range(parts.count(11)):
                    var place = k * most * ACCUMULATOR
                    _reduction(parts.total(k))(
                        first.unsafe_offset(place), other.unsafe_offset(place), Int64(rows), 0,
                        MERGE,
                    )
            _write_totals(parts, tile, first, most)
    _ = memory^
