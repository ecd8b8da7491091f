"""Images resized on a CPU: each row of the input that counts is resized once, and rows of the output
are sums of those."""

from std.math import ceildiv, iota
from std.memory import unsafe_memcpy
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, task_count
from .resample_table import CHUNK, Table
from .taps import taps_of

comptime GRAIN = 16384


@always_inline
def _along[
    dtype: DType, sum: DType, result: DType, //, few: Int
](row: Address[dtype], to: Address[result], table: Table[sum]):
    """Resizes one row. `few` is the number of taps, or 0 for any number."""
    comptime width = simd_width_of[sum]()
    var n = table.output
    if table.kept:
        for x in range(n):
            to[unsafe_offset=x] = row[unsafe_offset=x].cast[result]()
        return
    comptime if few != 0:
        var x = 0
        while x + width <= n:
            var value = SIMD[sum, width](table.start())
            comptime for k in range(few):
                var from_ = table.positions.unsafe_load[width=width](k * n + x)
                var pixels = row.unsafe_gather(from_).cast[sum]()
                comptime if few == 1:
                    value = pixels
                else:
                    var weight = table.weights.unsafe_load[width=width](
                        k * n + x
                    )
                    comptime if k == 0 and sum != DType.int32:
                        value = pixels * weight
                    else:
                        value = pixels.fma(weight, value)
            comptime if few != 1:
                value = table.settled(value)
            to.unsafe_store[width=width](x, value.cast[result]())
            x += width
        while x < n:
            var value = table.start()
            comptime for k in range(few):
                var pixel = row[
                    unsafe_offset=Int(table.positions[unsafe_offset=k * n + x])
                ].cast[sum]()
                comptime if few == 1:
                    value = pixel
                else:
                    var weight = table.weights[unsafe_offset = k * n + x]
                    comptime if k == 0 and sum != DType.int32:
                        value = pixel * weight
                    else:
                        value = pixel.fma(weight, value)
            comptime if few != 1:
                value = table.settled(value)
            to[unsafe_offset=x] = value.cast[result]()
            x += 1
    else:
        for x in range(n):
            var count = Int(table.counts[unsafe_offset=x])
            var from_ = row.unsafe_offset(
                Int(table.rows[unsafe_offset = x * table.taps])
            )
            var factors = table.factors.unsafe_offset(x * table.taps)
            var room = table.input - Int(
                table.rows[unsafe_offset = x * table.taps]
            )
            var sums = SIMD[sum, CHUNK](0)
            var k = 0
            while k < count and k + CHUNK <= room:
                var pixels = from_.unsafe_load[width=CHUNK](k).cast[sum]()
                var weights = factors.unsafe_load[width=CHUNK](k)
                if k + CHUNK > count:
                    var taken = iota[DType.int32, CHUNK](Int32(k)).lt(
                        SIMD[DType.int32, CHUNK](count)
                    )
                    pixels = taken.select(pixels, SIMD[sum, CHUNK](0))
                    weights = taken.select(weights, SIMD[sum, CHUNK](0))
                sums = pixels.fma(weights, sums)
                k += CHUNK
            var value = table.start() + sums.reduce_add()
            while k < count:
                value = (
                    from_[unsafe_offset=k]
                    .cast[sum]()
                    .fma(factors[unsafe_offset=k], value)
                )
                k += 1
            to[unsafe_offset=x] = table.settled(value).cast[result]()


@always_inline
def _blend[
    sum: DType, dtype: DType, result: DType, //, few: Int
](
    rows: Address[dtype],
    places: Address[DType.int64],
    to: Address[result],
    size: Int,
    at: Int,
    table: Table[sum],
):
    """The weighed sum of rows, which begin at `places`, for output `at`."""
    comptime width = simd_width_of[sum]()
    var factors = table.factors.unsafe_offset(at * table.taps)
    var count = Int(table.counts[unsafe_offset=at])
    comptime if few > 1:
        var begins = places.unsafe_load[width=few](0)
        var x = 0
        while x + width <= size:
            var value = SIMD[sum, width](table.start())
            comptime for k in range(few):
                var pixels = rows.unsafe_load[width=width](
                    Int(begins[k]) + x
                ).cast[sum]()
                comptime if k == 0 and sum != DType.int32:
                    value = pixels * factors[unsafe_offset=k]
                else:
                    value = pixels.fma(factors[unsafe_offset=k], value)
            to.unsafe_store[width=width](
                x, table.settled(value).cast[result]()
            )
            x += width
        while x < size:
            var value = table.start()
            comptime for k in range(few):
                var pixel = rows[unsafe_offset = Int(begins[k]) + x].cast[sum]()
                comptime if k == 0 and sum != DType.int32:
                    value = pixel * factors[unsafe_offset=k]
                else:
                    value = pixel.fma(factors[unsafe_offset=k], value)
            to[unsafe_offset=x] = table.settled(value).cast[result]()
            x += 1
    else:
        var x = 0
        while x + width <= size:
            var value = SIMD[sum, width](table.start())
            for k in range(count):
                value = (
                    rows.unsafe_load[width=width](
                        Int(places[unsafe_offset=k]) + x
                    )
                    .cast[sum]()
                    .fma(factors[unsafe_offset=k], value)
                )
            to.unsafe_store[width=width](
                x, table.settled(value).cast[result]()
            )
            x += width
        while x < size:
            var value = table.start()
            for k in range(count):
                value = (
                    rows[unsafe_offset = Int(places[unsafe_offset=k]) + x]
                    .cast[sum]()
                    .fma(factors[unsafe_offset=k], value)
                )
            to[unsafe_offset=x] = table.settled(value).cast[result]()
            x += 1


@always_inline
def _resize_rows[
    dtype: DType, sum: DType, //, kind: StaticString
](
    source: Address[dtype],
    to: Address[dtype],
    begin: Int,
    end: Int,
    high: Table[sum],
    wide: Table[sum],
    ring: Address[sum],
    tags: Address[DType.int64],
):
    """Rows `begin` to `end` of a resized plane, written from `to` on.

    Args:
        source: The plane.
        to: The rows.
        begin: The first row.
        end: The end of the rows.
        high: The vertical axis.
        wide: The horizontal axis.
        ring: Room for `high.taps` resized rows of the input.
        tags: Room for twice as many numbers.
    """
    comptime few = taps_of[kind]()
    var n = wide.output
    var taps = high.taps
    if taps == 1:
        var before = -1
        for y in range(begin, end):
            var row = Int(high.rows[unsafe_offset=y])
            var target = to.unsafe_offset((y - begin) * n)
            if row == before:
                unsafe_memcpy(
                    dest=target, src=target.unsafe_offset(-n), count=n
                )
            else:
                _along[few](source.unsafe_offset(row * wide.input), target, wide)
            before = row
        return
    for k in range(taps):
        tags[unsafe_offset=k] = -1
    var places = tags.unsafe_offset(taps)
    for y in range(begin, end):
        for k in range(Int(high.counts[unsafe_offset=y])):
            var row = Int(high.rows[unsafe_offset = y * taps + k])
            var slot = row % taps
            if Int(tags[unsafe_offset=slot]) != row:
                _along[few](
                    source.unsafe_offset(row * wide.input),
                    ring.unsafe_offset(slot * n),
                    wide,
                )
                tags[unsafe_offset=slot] = Int64(row)
            places[unsafe_offset=k] = Int64(slot * n)
        _blend[few](ring, places, to.unsafe_offset((y - begin) * n), n, y, high)


def resize[
    dtype: DType, sum: DType, //, kind: StaticString
](
    source: Address[dtype],
    result: Address[dtype],
    planes: Int,
    deep: Table[sum],
    high: Table[sum],
    wide: Table[sum],
):
    """Resizes planes, by threads that take whole ones or parts of them."""
    var area = high.output * wide.output
    var volume = deep.output * area
    # Parts are of rows, or of slices if there are several.
    var slices = deep.output > 1 or deep.taps > 1
    var extent = deep.output if slices else high.output
    var cost = planes * volume * high.taps
    var tasks = task_count(cost, cost, GRAIN)
    var parts = 1
    if planes < 4 * tasks and tasks > 1:
        parts = min(extent, ceildiv(4 * tasks, planes))
    var per_part = ceildiv(extent, parts)
    parts = ceildiv(extent, per_part)
    var units = planes * parts
    tasks = min(tasks, units)
    var ring_size = high.taps * wide.output
    var slices_size = deep.taps * area if slices else 0
    var tags_size = 2 * (high.taps + deep.taps)
    var rings = List[Scalar[sum]](unsafe_uninit_length=tasks * ring_size)
    var boxes = List[Scalar[dtype]](unsafe_uninit_length=tasks * slices_size)
    var marks = List[Int64](unsafe_uninit_length=tasks * tags_size)
    var rp = untracked(rings.unsafe_ptr())
    var bp = untracked(boxes.unsafe_ptr())
    var mp = untracked(marks.unsafe_ptr())

    def work(task: Int, lower: Int, upper: Int) {
        var source, var result, var deep, var high, var wide, var area, var volume, var slices,
        var extent, var parts, var per_part, var ring_size, var slices_size, var tags_size,
        var rp, var bp, var mp
    }:
        comptime few = taps_of[kind]()
        var ring = rp.unsafe_offset(task * ring_size)
        var box = bp.unsafe_offset(task * slices_size)
        var tags = mp.unsafe_offset(task * tags_size)
        var marks = tags.unsafe_offset(2 * high.taps)
        var places = marks.unsafe_offset(deep.taps)
        var slice = high.input * wide.input
        for unit in range(lower, upper):
            var plane = unit // parts
            var begin = unit % parts * per_part
            var end = min(extent, begin + per_part)
            var from_ = source.unsafe_offset(plane * deep.input * slice)
            var to = result.unsafe_offset(plane * volume)
            if not slices:
                _resize_rows[kind](
                    from_,
                    to.unsafe_offset(begin * wide.output),
                    begin,
                    end,
                    high,
                    wide,
                    ring,
                    tags,
                )
                continue
            for k in range(deep.taps):
                marks[unsafe_offset=k] = -1
            for z in range(begin, end):
                var target = to.unsafe_offset(z * area)
                for k in range(Int(deep.counts[unsafe_offset=z])):
                    var at = Int(deep.rows[unsafe_offset = z * deep.taps + k])
                    var slot = at % deep.taps
                    if Int(marks[unsafe_offset=slot]) != at:
                        _resize_rows[kind](
                            from_.unsafe_offset(at * slice),
                            box.unsafe_offset(slot * area),
                            0,
                            high.output,
                            high,
                            wide,
                            ring,
                            tags,
                        )
                        marks[unsafe_offset=slot] = Int64(at)
                    places[unsafe_offset=k] = Int64(slot * area)
                comptime if few == 1:
                    unsafe_memcpy(dest=target, src=box, count=area)
                else:
                    _blend[few](box, places, target, area, z, deep)

    in_numbered_ranges(work, units, tasks)
    _ = rings^
    _ = boxes^
    _ = marks^
