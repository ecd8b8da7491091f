"""Resizing of images `[batch, channels, depth, height, width]` and its gradient.

Resizing is separable: on CPU each row of the input that counts is resized once,
and rows of the output are sums of those. GPUs compute each pixel by itself."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import ceildiv, iota
from std.memory import unsafe_memcpy, unsafe_memset_zero
from std.sys import simd_width_of

from ..core.each import foreach
from ..core.memory import Address, Untracked
from .taps import Taps, taps_of
from ..core.team import parallelism_level, sync_parallelize

comptime GRAIN = 16384
# Taps at a time; tables have room for as many more.
comptime CHUNK = 8


@always_inline
def weight_type[kind: StaticString, dtype: DType]() -> DType:
    """The type that positions and weights are computed in."""
    comptime bytes = dtype == DType.uint8 and taps_of[kind]() != 1
    comptime exact = dtype == DType.float64 or bytes
    return DType.float64 if exact else DType.float32


@always_inline
def sum_type[kind: StaticString, dtype: DType]() -> DType:
    """The type of sums: bytes are weighed by integers, as Pillow does."""
    comptime if taps_of[kind]() == 1:
        return dtype
    elif dtype == DType.uint8:
        return DType.int32
    else:
        return weight_type[kind, dtype]()


@fieldwise_init
struct Table[dtype: DType](TrivialRegisterPassable):
    """The taps of each output pixel of an axis.

    `positions` and `weights` are `[taps, output]`, for loops along the axis;
    `rows` and `factors` are `[output, taps]`. Weights are those of bytes if
    `shift`, the number of their bits behind the point, is not 0."""

    var input: Int
    var output: Int
    var taps: Int
    var shift: Int
    # Whether the output is the input.
    var kept: Bool
    var counts: Address[DType.int32]
    var positions: Address[DType.int32]
    var weights: Address[Self.dtype]
    var rows: Address[DType.int32]
    var factors: Address[Self.dtype]

    @always_inline
    def start(self) -> Scalar[Self.dtype]:
        """What sums start with: a half, where they are rounded."""
        comptime if Self.dtype == DType.int32:
            return Scalar[Self.dtype](1) << Scalar[Self.dtype](self.shift - 1)
        else:
            return 0

    @always_inline
    def settled[
        width: SIMDLength
    ](self, sum: SIMD[Self.dtype, width]) -> SIMD[Self.dtype, width]:
        """A sum as a pixel."""
        comptime if Self.dtype == DType.int32:
            return (sum >> SIMD[Self.dtype, width](self.shift)).clamp(0, 255)
        else:
            return sum


struct Owner[dtype: DType](Movable):
    """The memory of a table."""

    var numbers: List[Int32]
    var weights: List[Scalar[Self.dtype]]
    var taps: Int
    var input: Int
    var output: Int
    var shift: Int
    var kept: Bool

    def __init__[
        kind: StaticString, floating: DType
    ](out self, axis: Taps[kind, floating]):
        var n = axis.output
        var most = axis.most()
        self.taps = most
        self.input = axis.input
        self.output = n
        self.shift = 0
        self.kept = axis.lifted
        self.numbers = List[Int32](length=n * (1 + 2 * most), fill=0)
        self.weights = List[Scalar[Self.dtype]](
            length=2 * n * most + CHUNK, fill=0
        )
        var exact = List[Scalar[floating]](length=n * most, fill=0)
        for at in range(n):
            var count = axis.count(at)
            self.numbers[at] = Int32(count)
            var total = axis.total(at)
            for k in range(most):
                var position = axis.pixel(at, k)
                self.numbers[n + k * n + at] = Int32(position)
                self.numbers[n + n * most + at * most + k] = Int32(position)
                if k < count:
                    exact[at * most + k] = axis.weight(at, k) / total
        comptime if Self.dtype == DType.int32 and taps_of[kind]() != 1:
            self._round(exact, most)
        else:
            for i in range(n * most):
                self._put(i, exact[i].cast[Self.dtype]())

    def _put(mut self, i: Int, weight: Scalar[Self.dtype]):
        var n = self.output
        var at = i // self.taps
        var k = i % self.taps
        self.weights[k * n + at] = weight
        self.weights[n * self.taps + i] = weight

    def _round[
        floating: DType
    ](mut self, mut exact: List[Scalar[floating]], most: Int):
        """Weights as integers of at most 16 bits, with as many bits behind the
        point as the greatest of them leaves."""
        comptime assert floating.is_floating_point(), "float only"
        var greatest = Scalar[floating](0)
        for at in range(self.output):
            for k in range(most - 1, 0, -1):
                # Taps beyond the border are one with the pixel at the border.
                var here = self.output * (1 + most) + at * most + k
                if (
                    self.numbers[here] == self.numbers[here - 1]
                    and k < Int(self.numbers[at])
                ):
                    exact[at * most + k - 1] += exact[at * most + k]
                    exact[at * most + k] = 0
            for k in range(most):
                greatest = max(greatest, exact[at * most + k])
        while self.shift < 22:
            var next = Scalar[floating](0.5) + greatest * Scalar[floating](
                1 << (self.shift + 1)
            )
            if Int(next) >= 1 << 15:
                break
            self.shift += 1
        for i in range(self.output * most):
            var scaled = exact[i] * Scalar[floating](1 << self.shift)
            var half = Scalar[floating](-0.5 if scaled < 0 else 0.5)
            self._put(i, (scaled + half).cast[Self.dtype]())

    def table(mut self) -> Table[Self.dtype]:
        """The table, as long as this lives."""
        var n = self.output
        var numbers = self.numbers.unsafe_ptr().unsafe_origin_cast[
            Untracked
        ]()
        var weights = self.weights.unsafe_ptr().unsafe_origin_cast[
            Untracked
        ]()
        return Table[Self.dtype](
            self.input,
            n,
            self.taps,
            self.shift,
            self.kept,
            numbers,
            numbers.unsafe_offset(n),
            weights,
            numbers.unsafe_offset(n + n * self.taps),
            weights.unsafe_offset(n * self.taps),
        )


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


def _resize[
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
    var threads = parallelism_level(None)
    var cost = planes * volume * high.taps
    var tasks = max(1, min(threads, cost // GRAIN))
    var parts = 1
    if planes < 4 * tasks and tasks > 1:
        parts = min(extent, ceildiv(4 * tasks, planes))
    var per_part = ceildiv(extent, parts)
    parts = ceildiv(extent, per_part)
    var units = planes * parts
    tasks = min(tasks, units)
    var chunk = ceildiv(units, tasks)
    var ring_size = high.taps * wide.output
    var slices_size = deep.taps * area if slices else 0
    var tags_size = 2 * (high.taps + deep.taps)
    var rings = List[Scalar[sum]](unsafe_uninit_length=tasks * ring_size)
    var boxes = List[Scalar[dtype]](unsafe_uninit_length=tasks * slices_size)
    var marks = List[Int64](unsafe_uninit_length=tasks * tags_size)
    var rp = rings.unsafe_ptr().unsafe_origin_cast[Untracked]()
    var bp = boxes.unsafe_ptr().unsafe_origin_cast[Untracked]()
    var mp = marks.unsafe_ptr().unsafe_origin_cast[Untracked]()

    def work(
        task: Int,
    ) {
        var source,
        var result,
        var deep,
        var high,
        var wide,
        var area,
        var volume,
        var slices,
        var extent,
        var parts,
        var per_part,
        var units,
        var chunk,
        var ring_size,
        var slices_size,
        var tags_size,
        var rp,
        var bp,
        var mp,
    }:
        comptime few = taps_of[kind]()
        var ring = rp.unsafe_offset(task * ring_size)
        var box = bp.unsafe_offset(task * slices_size)
        var tags = mp.unsafe_offset(task * tags_size)
        var marks = tags.unsafe_offset(2 * high.taps)
        var places = marks.unsafe_offset(deep.taps)
        var slice = high.input * wide.input
        for unit in range(task * chunk, min(units, (task + 1) * chunk)):
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

    sync_parallelize(work, tasks)
    _ = rings^
    _ = boxes^
    _ = marks^


@always_inline
def _axes[
    kind: StaticString, floating: DType, bytes: Bool
](
    inputs: Tuple[Int, Int, Int],
    outputs: Tuple[Int, Int, Int],
    scales: Tuple[Float64, Float64, Float64],
    align: Bool,
    planar: Bool,
    spatial: Int,
) -> Tuple[
    Taps[kind, floating], Taps[kind, floating], Taps[kind, floating]
]:
    """The depth, the height and the width."""
    var same = inputs[1] == outputs[1] and inputs[2] == outputs[2]
    # Filters leave an image of the same size as it is, whatever the scale.
    # Bytes of an axis that keeps its size are not rounded.
    var kept = taps_of[kind]() == 0 and same
    return Tuple(
        Taps[kind, floating].of(
            inputs[0], outputs[0], scales[0], align, planar, spatial < 3
        ),
        Taps[kind, floating].of(
            inputs[1],
            outputs[1],
            scales[1],
            align,
            planar,
            spatial < 2 or kept or (bytes and inputs[1] == outputs[1]),
        ),
        Taps[kind, floating].of(
            inputs[2],
            outputs[2],
            scales[2],
            align,
            planar,
            kept or (bytes and inputs[2] == outputs[2]),
        ),
    )


@register("tmb_resample")
struct Resample:
    """Images resized to the output's size.

    Inputs are the images, whether corners are aligned, the number of spatial
    dimensions (the last ones) and the three scales, 0 where none is given."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        align: Int64,
        spatial: Int64,
        scale_d: Float64,
        scale_h: Float64,
        scale_w: Float64,
        ctx: DeviceContext,
    ) raises:
        if output.size() == 0:
            return
        if x.size() == 0:
            raise Error("an image without pixels cannot be resized")
        comptime floating = weight_type[kind, dtype]()
        comptime bytes = dtype == DType.uint8 and taps_of[kind]() != 1
        var extent = output.dim_size[3]() + output.dim_size[4]()
        var planar = spatial == 2 and extent <= 128
        var axes = _axes[kind, floating, bytes](
            Tuple(x.dim_size[2](), x.dim_size[3](), x.dim_size[4]()),
            Tuple(
                output.dim_size[2](), output.dim_size[3](), output.dim_size[4]()
            ),
            Tuple(scale_d, scale_h, scale_w),
            align != 0,
            planar,
            Int(spatial),
        )
        var deep = axes[0]
        var high = axes[1]
        var wide = axes[2]
        comptime if target == "cpu":
            comptime sum = sum_type[kind, dtype]()
            var deep_owner = Owner[sum](deep)
            var high_owner = Owner[sum](high)
            var wide_owner = Owner[sum](wide)
            _resize[kind](
                x.unsafe_ptr().unsafe_origin_cast[Untracked](),
                output.unsafe_ptr().unsafe_origin_cast[Untracked](),
                output.dim_size[0]() * output.dim_size[1](),
                deep_owner.table(),
                high_owner.table(),
                wide_owner.table(),
            )
            _ = deep_owner^
            _ = high_owner^
            _ = wide_owner^
        else:
            var channels = x.dim_size[1]()
            var source = x.unsafe_ptr()

            @always_inline
            def body[
                width: Int
            ](idx: Coord[...]) {
                var channels, var deep, var high, var wide, var source
            } -> SIMD[dtype, width]:
                var result = SIMD[dtype, width](0)
                var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
                var z = Int(idx[2].value())
                var y = Int(idx[3].value())
                for lane in range(width):
                    var x = Int(idx[4].value()) + lane
                    comptime if taps_of[kind]() == 1:
                        var at = (
                            plane * deep.input + deep.first(z)
                        ) * high.input + high.first(y)
                        result[lane] = source[
                            unsafe_offset=at * wide.input + wide.first(x)
                        ]
                        continue
                    var sum = Scalar[floating](0)
                    for i in range(deep.count(z)):
                        var slice = plane * deep.input + deep.inside(
                            deep.first(z) + i
                        )
                        for j in range(high.count(y)):
                            var row = slice * high.input + high.inside(
                                high.first(y) + j
                            )
                            var part = Scalar[floating](0)
                            for k in range(wide.count(x)):
                                var at = wide.inside(wide.first(x) + k)
                                var pixel = source[
                                    unsafe_offset=row * wide.input + at
                                ].cast[floating]()
                                part += pixel * wide.weight(x, k)
                            sum += part * deep.weight(z, i) * high.weight(y, j)
                    sum /= deep.total(z) * high.total(y) * wide.total(x)
                    comptime if dtype.is_integral():
                        sum = min(max(sum + Scalar[floating](0.5), 0), 255)
                    result[lane] = sum.cast[dtype]()
                return result

            foreach[target=target](body, output, ctx)


struct Users[dtype: DType](Movable):
    """For each pixel of an axis of the input, the outputs that take it: those of
    pixel `i` are entries `starts[i]` to `starts[i + 1]`."""

    var starts: List[Int]
    var outputs: List[Int32]
    var weights: List[Scalar[Self.dtype]]

    def __init__(out self, table: Table[Self.dtype]):
        self.starts = List[Int](length=table.input + 1, fill=0)
        var entries = 0
        for at in range(table.output):
            for k in range(Int(table.counts[unsafe_offset=at])):
                var pixel = Int(
                    table.rows[unsafe_offset = at * table.taps + k]
                )
                self.starts[pixel + 1] += 1
                entries += 1
        for i in range(table.input):
            self.starts[i + 1] += self.starts[i]
        self.outputs = List[Int32](length=entries, fill=0)
        self.weights = List[Scalar[Self.dtype]](length=entries, fill=0)
        var next = self.starts.copy()
        for at in range(table.output):
            for k in range(Int(table.counts[unsafe_offset=at])):
                var i = at * table.taps + k
                var pixel = Int(table.rows[unsafe_offset=i])
                self.outputs[next[pixel]] = Int32(at)
                self.weights[next[pixel]] = table.factors[unsafe_offset=i]
                next[pixel] += 1


@always_inline
def _add[
    dtype: DType
](
    to: Address[dtype],
    from_: Address[dtype],
    factor: Scalar[dtype],
    size: Int,
):
    """Adds `factor` times `from_`."""
    comptime width = simd_width_of[dtype]()
    var j = 0
    while j + width <= size:
        var value = from_.unsafe_load[width=width](j)
        to.unsafe_store[width=width](
            j, value.fma(factor, to.unsafe_load[width=width](j))
        )
        j += width
    while j < size:
        to[unsafe_offset=j] = from_[unsafe_offset=j].fma(
            factor, to[unsafe_offset=j]
        )
        j += 1


def _resize_backward[
    dtype: DType, //
](
    source: Address[dtype],
    result: Address[dtype],
    planes: Int,
    deep: Table[dtype],
    high: Table[dtype],
    wide: Table[dtype],
):
    """The gradient of whole planes, a thread each: sums are in one order always."""
    var area = high.input * wide.input
    var outer = high.output * wide.output
    var rows = high.input * wide.output
    var volume = deep.input * area
    var cost = planes * max(volume, deep.output * outer) * high.taps
    var tasks = min(parallelism_level(None), cost // GRAIN)
    tasks = max(1, min(tasks, planes))
    var chunk = ceildiv(planes, tasks)
    var users = Users[dtype](wide)
    var begins = users.starts.unsafe_ptr().unsafe_origin_cast[Untracked]()
    var ends = users.outputs.unsafe_ptr().unsafe_origin_cast[Untracked]()
    var weights = users.weights.unsafe_ptr().unsafe_origin_cast[Untracked]()
    var scratch = List[Scalar[dtype]](
        unsafe_uninit_length=tasks * (rows + area)
    )
    var sp = scratch.unsafe_ptr().unsafe_origin_cast[Untracked]()

    def work(
        task: Int,
    ) {
        var source,
        var result,
        var planes,
        var deep,
        var high,
        var wide,
        var area,
        var outer,
        var rows,
        var volume,
        var chunk,
        var begins,
        var ends,
        var weights,
        var sp,
    }:
        var sums = sp.unsafe_offset(task * (rows + area))
        var slice = sums.unsafe_offset(rows)
        for plane in range(task * chunk, min(planes, (task + 1) * chunk)):
            var gradient = result.unsafe_offset(plane * volume)
            # With one slice, sums go to where they belong at once.
            var single = deep.kept
            if not single:
                unsafe_memset_zero(gradient, count=volume)
            for z in range(deep.output):
                var from_ = source.unsafe_offset(
                    (plane * deep.output + z) * outer
                )
                var lines = from_
                if not high.kept:
                    lines = sums
                    unsafe_memset_zero(sums, count=rows)
                    for y in range(high.output):
                        for k in range(Int(high.counts[unsafe_offset=y])):
                            var i = y * high.taps + k
                            var row = Int(high.rows[unsafe_offset=i])
                            _add(
                                sums.unsafe_offset(row * wide.output),
                                from_.unsafe_offset(y * wide.output),
                                high.factors[unsafe_offset=i],
                                wide.output,
                            )
                var to = slice
                if single:
                    to = gradient.unsafe_offset(z * area)
                for y in range(high.input):
                    var line = lines.unsafe_offset(y * wide.output)
                    var row = to.unsafe_offset(y * wide.input)
                    for x in range(wide.input):
                        var sum = Scalar[dtype](0)
                        for e in range(
                            begins[unsafe_offset=x], begins[unsafe_offset = x + 1]
                        ):
                            sum = line[
                                unsafe_offset=Int(ends[unsafe_offset=e])
                            ].fma(weights[unsafe_offset=e], sum)
                        row[unsafe_offset=x] = sum
                if single:
                    continue
                for k in range(Int(deep.counts[unsafe_offset=z])):
                    var i = z * deep.taps + k
                    var at = Int(deep.rows[unsafe_offset=i])
                    _add(
                        gradient.unsafe_offset(at * area),
                        slice,
                        deep.factors[unsafe_offset=i],
                        area,
                    )

    sync_parallelize(work, tasks)
    _ = users^
    _ = scratch^


@always_inline
def _share[
    kind: StaticString, floating: DType
](axis: Taps[kind, floating], at: Int, pixel: Int) -> Scalar[floating]:
    """What output `at` takes of a pixel."""
    var sum = Scalar[floating](0)
    for k in range(axis.count(at)):
        if axis.inside(axis.first(at) + k) == pixel:
            sum += axis.weight(at, k)
    return sum / axis.total(at)


@register("tmb_resample_backward")
struct ResampleBackward:
    """The gradient by the images, of that by the resized images. Inputs are as
    those of `tmb_resample`."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        result: OutputTensor[dtype=dtype, rank=5, ...],
        gradient: InputTensor[dtype=dtype, rank=5, ...],
        align: Int64,
        spatial: Int64,
        scale_d: Float64,
        scale_h: Float64,
        scale_w: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        if result.size() == 0:
            return
        if gradient.size() == 0:
            raise Error("an image cannot be resized to one without pixels")
        comptime floating = DType.float64 if dtype == DType.float64 else DType.float32
        var axes = _axes[kind, floating, False](
            Tuple(
                result.dim_size[2](), result.dim_size[3](), result.dim_size[4]()
            ),
            Tuple(
                gradient.dim_size[2](),
                gradient.dim_size[3](),
                gradient.dim_size[4](),
            ),
            Tuple(scale_d, scale_h, scale_w),
            align != 0,
            True,
            Int(spatial),
        )
        var deep = axes[0]
        var high = axes[1]
        var wide = axes[2]
        comptime if target == "cpu":
            var deep_owner = Owner[dtype](deep)
            var high_owner = Owner[dtype](high)
            var wide_owner = Owner[dtype](wide)
            _resize_backward(
                gradient.unsafe_ptr().unsafe_origin_cast[Untracked](),
                result.unsafe_ptr().unsafe_origin_cast[Untracked](),
                result.dim_size[0]() * result.dim_size[1](),
                deep_owner.table(),
                high_owner.table(),
                wide_owner.table(),
            )
            _ = deep_owner^
            _ = high_owner^
            _ = wide_owner^
        else:
            var channels = result.dim_size[1]()
            var source = gradient.unsafe_ptr()

            @always_inline
            def body[
                width: Int
            ](idx: Coord[...]) {
                var channels, var deep, var high, var wide, var source
            } -> SIMD[dtype, width]:
                var values = SIMD[dtype, width](0)
                var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
                var pz = Int(idx[2].value())
                var py = Int(idx[3].value())
                for lane in range(width):
                    var px = Int(idx[4].value()) + lane
                    var sum = Scalar[floating](0)
                    for z in range(deep.begin_of(pz), deep.end_of(pz)):
                        var slice = Scalar[floating](0)
                        for y in range(high.begin_of(py), high.end_of(py)):
                            var at = (plane * deep.output + z) * high.output + y
                            var row = Scalar[floating](0)
                            for x in range(wide.begin_of(px), wide.end_of(px)):
                                var value = source[
                                    unsafe_offset=at * wide.output + x
                                ].cast[floating]()
                                row += value * _share(wide, x, px)
                            slice += row * _share(high, y, py)
                        sum += slice * _share(deep, z, pz)
                    values[lane] = sum.cast[dtype]()
                return values

            foreach[target=target](body, result, ctx)
