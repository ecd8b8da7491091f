"""Images `[batch, channels, depth, height, width]` read at positions of a grid
`[batch, depth, height, width, 2 or 3]` (x, y and z from -1 to 1), and the gradient.

A position becomes a few taps, pixels with weights, which all channels share."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import ceildiv, floor
from std.sys import simd_width_of
from std.utils.numerics import isnan

from .each import foreach
from .lines import each_line
from .memory import Address, Untracked
from .taps import cubic_weight
from .team import parallelism_level, sync_parallelize

comptime GRAIN = 16384
# Positions at a time: their taps stay in the cache.
comptime BLOCK = 128
comptime ZEROS = 0
comptime BORDER = 1


@always_inline
def taps_of[mode: StaticString, spatial: Int]() -> Int:
    """How many pixels a position takes."""
    comptime if mode == "nearest":
        return 1
    elif mode == "cubic":
        return 16 if spatial == 2 else 64
    else:
        return 4 if spatial == 2 else 8


@fieldwise_init
struct Axis(TrivialRegisterPassable):
    """An axis of the image and how positions beyond it are meant."""

    var size: Int
    var padding: Int
    var align: Bool

    @always_inline
    def place[
        dtype: DType, spatial: Int
    ](self, position: Scalar[dtype]) -> Scalar[dtype]:
        """A position of the grid in pixels."""
        comptime one = Scalar[dtype](1)
        comptime half = Scalar[dtype](0.5)
        var size = Scalar[dtype](self.size)
        # Rounded as torch rounds: halves decide which pixel is nearest.
        comptime if spatial == 2:
            if self.align:
                return (position + one) * ((size - one) * half)
            return (position + one) * (size * half) - half
        else:
            if self.align:
                return (position + one) * half * (size - one)
            return ((position + one) * size - one) * half

    @always_inline
    def scale[dtype: DType](self) -> Scalar[dtype]:
        """Pixels for a unit of the grid."""
        return Scalar[dtype](self.size - 1 if self.align else self.size) / 2

    @always_inline
    def bounded[
        dtype: DType, spatial: Int
    ](self, position: Scalar[dtype]) -> Tuple[Scalar[dtype], Scalar[dtype]]:
        """A position brought into the image, and its slope."""
        comptime assert dtype.is_floating_point(), "float only"
        comptime one = Scalar[dtype](1)
        if self.padding == ZEROS:
            return (position, one)
        var at = position
        var slope = one
        if self.padding != BORDER:
            var low = Scalar[dtype](0.0 if self.align else -0.5)
            var span = Scalar[dtype](self.size - 1 if self.align else self.size)
            if span == 0:
                return (Scalar[dtype](0), Scalar[dtype](0))
            at = position - low
            if at < 0:
                at = -at
                slope = -one
            var flips = floor(at / span)
            var extra = at - flips * span
            if floor(flips / 2) * 2 == flips:
                at = extra + low
            else:
                at = span - extra + low
                slope = -slope
        var last = Scalar[dtype](self.size - 1)
        if isnan(at):
            # As in torch: the first pixel of a plane, the last of a volume.
            return (Scalar[dtype](0) if spatial == 2 else last, Scalar[dtype](0))
        if at <= 0:
            return (Scalar[dtype](0), Scalar[dtype](0))
        if at >= last:
            return (last, Scalar[dtype](0))
        return (at, slope)

    @always_inline
    def index[dtype: DType](self, position: Scalar[dtype]) -> Int:
        """The pixel of a whole position, -1 for one outside."""
        if position >= 0 and position < Scalar[dtype](self.size):
            return Int(position)
        return -1


@always_inline
def _nearest[dtype: DType](position: Scalar[dtype]) -> Scalar[dtype]:
    """A position rounded, halves to the even pixel."""
    comptime assert dtype.is_floating_point(), "float only"
    var low = floor(position)
    var part = position - low
    if part == 0.5:
        return low if floor(low / 2) * 2 == low else low + 1
    return low + 1 if part > 0.5 else low


@always_inline
def _slope_of_cubic[
    dtype: DType
](k: Int, t: Scalar[dtype]) -> Scalar[dtype]:
    """The derivative by `t` of `cubic_weight`."""
    comptime a = Scalar[dtype](-0.75)
    var x = t + 1 - Scalar[dtype](k)
    var sign = Scalar[dtype](1)
    if x < 0:
        x = -x
        sign = -1
    if k == 1 or k == 2:
        return sign * (3 * (a + 2) * x - 2 * (a + 3)) * x
    return sign * ((3 * a * x - 10 * a) * x + 8 * a)


@fieldwise_init
struct Sample[dtype: DType, taps: Int](TrivialRegisterPassable):
    """The taps of a position: pixels of a plane (-1: none), their weights and the
    derivatives of those by x, y and z, to be multiplied by `scales`."""

    var pixels: SIMD[DType.int32, Self.taps]
    var weights: SIMD[Self.dtype, Self.taps]
    var by_x: SIMD[Self.dtype, Self.taps]
    var by_y: SIMD[Self.dtype, Self.taps]
    var by_z: SIMD[Self.dtype, Self.taps]
    var scales: SIMD[Self.dtype, 4]


@always_inline
def sample[
    dtype: DType, //, mode: StaticString, spatial: Int
](
    x: Scalar[dtype],
    y: Scalar[dtype],
    z: Scalar[dtype],
    wide: Axis,
    high: Axis,
    deep: Axis,
) -> Sample[dtype, taps_of[mode, spatial]()]:
    """The taps of a position of the grid."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime taps = taps_of[mode, spatial]()
    var pixels = SIMD[DType.int32, taps](-1)
    var weights = SIMD[dtype, taps](1)
    var by_x = SIMD[dtype, taps](0)
    var by_y = SIMD[dtype, taps](0)
    var by_z = SIMD[dtype, taps](0)
    var scales = SIMD[dtype, 4](
        wide.scale[dtype](), high.scale[dtype](), deep.scale[dtype](), 0
    )
    var px = wide.place[spatial=spatial](x)
    var py = high.place[spatial=spatial](y)
    comptime if mode == "cubic":
        var left = floor(px)
        var top = floor(py)
        var front = Scalar[dtype](0)
        var tx = px - left
        var ty = py - top
        var tz = Scalar[dtype](0)
        comptime if spatial == 3:
            var pz = deep.place[spatial=spatial](z)
            front = floor(pz)
            tz = pz - front
        comptime for k in range(taps // 16):
            var slice = 0
            var wz = Scalar[dtype](1)
            var slope = Scalar[dtype](0)
            comptime if spatial == 3:
                slice = deep.index(
                    floor(deep.bounded[spatial=spatial](front + Scalar[dtype](k - 1))[0])
                )
                wz = cubic_weight(k, tz)
                slope = _slope_of_cubic(k, tz)
            comptime for j in range(4):
                var row = high.index(
                    floor(high.bounded[spatial=spatial](top + Scalar[dtype](j - 1))[0])
                )
                var wy = cubic_weight(j, ty)
                comptime for i in range(4):
                    comptime t = (k * 4 + j) * 4 + i
                    var column = wide.index(
                        floor(wide.bounded[spatial=spatial](left + Scalar[dtype](i - 1))[0])
                    )
                    if row >= 0 and column >= 0 and slice >= 0:
                        pixels[t] = Int32((slice * high.size + row) * wide.size + column)
                    var wx = cubic_weight(i, tx)
                    weights[t] = wx * wy * wz
                    by_x[t] = _slope_of_cubic(i, tx) * wy * wz
                    by_y[t] = wx * _slope_of_cubic(j, ty) * wz
                    by_z[t] = wx * wy * slope
    else:
        var bx = wide.bounded[spatial=spatial](px)
        var by = high.bounded[spatial=spatial](py)
        var bz = Tuple(Scalar[dtype](0), Scalar[dtype](0))
        comptime if spatial == 3:
            bz = deep.bounded[spatial=spatial](deep.place[spatial=spatial](z))
        scales *= SIMD[dtype, 4](bx[1], by[1], bz[1], 0)
        comptime if mode == "nearest":
            var column = wide.index(_nearest(bx[0]))
            var row = high.index(_nearest(by[0]))
            var slice = deep.index(_nearest(bz[0]))
            if column >= 0 and row >= 0 and slice >= 0:
                pixels[0] = Int32(
                    (slice * high.size + row) * wide.size + column
                )
        else:
            var left = floor(bx[0])
            var top = floor(by[0])
            var front = floor(bz[0])
            var tx = bx[0] - left
            var ty = by[0] - top
            var tz = bz[0] - front
            comptime for t in range(taps):
                comptime dx = t % 2
                comptime dy = t // 2 % 2
                comptime dz = t // 4
                var column = wide.index(left + Scalar[dtype](dx))
                var row = high.index(top + Scalar[dtype](dy))
                var slice = deep.index(front + Scalar[dtype](dz))
                if column >= 0 and row >= 0 and slice >= 0:
                    pixels[t] = Int32(
                        (slice * high.size + row) * wide.size + column
                    )
                var wx = tx if dx == 1 else 1 - tx
                var wy = ty if dy == 1 else 1 - ty
                var wz = Scalar[dtype](1)
                comptime if spatial == 3:
                    wz = tz if dz == 1 else 1 - tz
                weights[t] = wx * wy * wz
                by_x[t] = (wy if dx == 1 else -wy) * wz
                by_y[t] = (wx if dy == 1 else -wx) * wz
                by_z[t] = (wx if dz == 1 else -wx) * wy
    comptime if spatial == 3 and mode != "cubic":
        # No pixel, no term; in planes, and for cubics, such a pixel counts as 0.
        var none = pixels.lt(SIMD[DType.int32, taps](0))
        weights = none.select(SIMD[dtype, taps](0), weights)
    return Sample[dtype, taps](pixels, weights, by_x, by_y, by_z, scales)


@fieldwise_init
struct Geometry(TrivialRegisterPassable):
    """Sizes of images and grids."""

    var batch: Int
    var channels: Int
    var deep: Axis
    var high: Axis
    var wide: Axis
    # Positions of a grid, and pixels of a plane.
    var positions: Int
    var pixels: Int

    @always_inline
    def sample[
        dtype: DType,
        mode: StaticString,
        spatial: Int,
    ](self, grid: Address[dtype], at: Int) -> Sample[
        dtype, taps_of[mode, spatial]()
    ]:
        """The taps of position `at` of all grids."""
        var from_ = grid.unsafe_offset(at * spatial)
        var z = Scalar[dtype](0)
        comptime if spatial == 3:
            z = from_[unsafe_offset=2]
        return sample[mode, spatial](
            from_[unsafe_offset=0],
            from_[unsafe_offset=1],
            z,
            self.wide,
            self.high,
            self.deep,
        )


@always_inline
def _value[
    dtype: DType, width: SIMDLength
](
    plane: Address[dtype], pixels: SIMD[DType.int32, width]
) -> SIMD[dtype, width]:
    """Pixels of a plane, 0 for those outside."""
    return plane.unsafe_gather(
        max(pixels, SIMD[DType.int32, width](0)),
        pixels.ge(SIMD[DType.int32, width](0)),
        SIMD[dtype, width](0),
    )


def _sample_all[
    dtype: DType, //, mode: StaticString, spatial: Int
](
    source: Address[dtype],
    grid: Address[dtype],
    result: Address[dtype],
    shape: Geometry,
):
    """Threads take blocks of positions."""
    comptime taps = taps_of[mode, spatial]()
    var blocks = ceildiv(shape.positions, BLOCK)
    var units = shape.batch * blocks
    var cost = shape.batch * shape.positions * (shape.channels + 4) * taps
    var tasks = min(parallelism_level(None), cost // GRAIN)
    tasks = max(1, min(tasks, units))
    var chunk = ceildiv(units, tasks)
    var numbers = List[Int32](unsafe_uninit_length=tasks * taps * BLOCK)
    var weights = List[Scalar[dtype]](
        unsafe_uninit_length=tasks * taps * BLOCK
    )
    var np = numbers.unsafe_ptr().unsafe_origin_cast[Untracked]()
    var wp = weights.unsafe_ptr().unsafe_origin_cast[Untracked]()

    def work(
        task: Int,
    ) {
        var source,
        var grid,
        var result,
        var shape,
        var blocks,
        var units,
        var chunk,
        var np,
        var wp,
    }:
        comptime width = simd_width_of[dtype]()
        var pixels = np.unsafe_offset(task * taps * BLOCK)
        var factors = wp.unsafe_offset(task * taps * BLOCK)
        for unit in range(task * chunk, min(units, (task + 1) * chunk)):
            var item = unit // blocks
            var begin = unit % blocks * BLOCK
            var count = min(BLOCK, shape.positions - begin)
            for p in range(count):
                var at = item * shape.positions + begin + p
                var s = shape.sample[dtype, mode, spatial](grid, at)
                comptime for t in range(taps):
                    pixels[unsafe_offset = t * BLOCK + p] = s.pixels[t]
                    factors[unsafe_offset = t * BLOCK + p] = s.weights[t]
            for channel in range(shape.channels):
                var plane = item * shape.channels + channel
                var from_ = source.unsafe_offset(plane * shape.pixels)
                var to = result.unsafe_offset(plane * shape.positions + begin)
                var p = 0
                while p + width <= count:
                    var sum = SIMD[dtype, width](0)
                    comptime for t in range(taps):
                        var value = _value(
                            from_,
                            pixels.unsafe_load[width=width](t * BLOCK + p),
                        )
                        comptime if taps == 1:
                            sum = value
                        else:
                            sum = value.fma(
                                factors.unsafe_load[width=width](
                                    t * BLOCK + p
                                ),
                                sum,
                            )
                    to.unsafe_store[width=width](p, sum)
                    p += width
                while p < count:
                    var sum = Scalar[dtype](0)
                    comptime for t in range(taps):
                        var pixel = pixels[unsafe_offset = t * BLOCK + p]
                        var value = Scalar[dtype](0)
                        if pixel >= 0:
                            value = from_[unsafe_offset=Int(pixel)]
                        comptime if taps == 1:
                            sum = value
                        else:
                            sum = value.fma(
                                factors[unsafe_offset = t * BLOCK + p], sum
                            )
                    to[unsafe_offset=p] = sum
                    p += 1

    sync_parallelize(work, tasks)
    _ = numbers^
    _ = weights^


@register("tmb_grid_sample")
struct GridSample:
    """The image at the positions. `mode` is linear, nearest or cubic; `padding`
    0 for zeros, 1 for the border, 2 for reflection."""

    @staticmethod
    def execute[
        dtype: DType, //, mode: StaticString, spatial: Int, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        grid: InputTensor[dtype=dtype, rank=5, ...],
        padding: Int64,
        align: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        if output.size() == 0:
            return
        var shape = _geometry(
            x.dim_size[0](),
            x.dim_size[1](),
            Tuple(x.dim_size[2](), x.dim_size[3](), x.dim_size[4]()),
            grid.dim_size[1]() * grid.dim_size[2]() * grid.dim_size[3](),
            Int(padding),
            align != 0,
        )
        var source = x.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var places = grid.unsafe_ptr().unsafe_origin_cast[Untracked]()
        comptime if target == "cpu":
            _sample_all[mode, spatial](
                source,
                places,
                output.unsafe_ptr().unsafe_origin_cast[Untracked](),
                shape,
            )
        else:
            var rows = output.dim_size[3]()
            var columns = output.dim_size[4]()

            @always_inline
            def body[
                width: Int
            ](idx: Coord[...]) {
                var source, var places, var shape, var rows, var columns
            } -> SIMD[dtype, width]:
                comptime taps = taps_of[mode, spatial]()
                var result = SIMD[dtype, width](0)
                var item = Int(idx[0].value())
                var plane = item * shape.channels + Int(idx[1].value())
                var from_ = source.unsafe_offset(plane * shape.pixels)
                var row = Int(idx[2].value()) * rows + Int(idx[3].value())
                for lane in range(width):
                    var at = row * columns + Int(idx[4].value()) + lane
                    var s = shape.sample[dtype, mode, spatial](
                        places, item * shape.positions + at
                    )
                    var sum = Scalar[dtype](0)
                    comptime for t in range(taps):
                        var value = Scalar[dtype](0)
                        if s.pixels[t] >= 0:
                            value = from_[unsafe_offset=Int(s.pixels[t])]
                        comptime if taps == 1:
                            sum = value
                        else:
                            sum += value * s.weights[t]
                    result[lane] = sum
                return result

            foreach[target=target](body, output, ctx)


def _geometry(
    batch: Int,
    channels: Int,
    sizes: Tuple[Int, Int, Int],
    positions: Int,
    padding: Int,
    align: Bool,
) raises -> Geometry:
    var pixels = sizes[0] * sizes[1] * sizes[2]
    if pixels == 0:
        raise Error("an image without pixels cannot be sampled")
    if pixels >= 1 << 31:
        raise Error("an image of more than 2 billion pixels cannot be sampled")
    return Geometry(
        batch,
        channels,
        Axis(sizes[0], padding, align),
        Axis(sizes[1], padding, align),
        Axis(sizes[2], padding, align),
        positions,
        pixels,
    )


@register("tmb_grid_sample_backward")
struct GridSampleBackward:
    """The gradients by the image and by the grid. Planes of the image and
    positions of the grid are summed by one thread each, in a fixed order."""

    @staticmethod
    def execute[
        dtype: DType, //, mode: StaticString, spatial: Int, target: StaticString
    ](
        by_image: OutputTensor[dtype=dtype, rank=5, ...],
        by_grid: OutputTensor[dtype=dtype, rank=5, ...],
        gradient: InputTensor[dtype=dtype, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        grid: InputTensor[dtype=dtype, rank=5, ...],
        padding: Int64,
        align: Int64,
        image_wanted: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        comptime taps = taps_of[mode, spatial]()
        if by_image.size() == 0 and by_grid.size() == 0:
            return
        var shape = _geometry(
            x.dim_size[0](),
            x.dim_size[1](),
            Tuple(x.dim_size[2](), x.dim_size[3](), x.dim_size[4]()),
            grid.dim_size[1]() * grid.dim_size[2]() * grid.dim_size[3](),
            Int(padding),
            align != 0,
        )
        var source = x.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var places = grid.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var given = gradient.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var to_image = by_image.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var to_grid = by_grid.unsafe_ptr().unsafe_origin_cast[Untracked]()
        # Channels at a time, which share the taps of a position.
        comptime together = 8 if target == "cpu" else 1
        var parts = ceildiv(shape.channels, together)

        @always_inline
        def image_of(
            unit: Int,
        ) {
            var shape, var places, var given, var to_image, var parts
        }:
            var item = unit // parts
            var first = unit % parts * together
            var count = min(together, shape.channels - first)
            var plane = item * shape.channels + first
            var to = to_image.unsafe_offset(plane * shape.pixels)
            var from_ = given.unsafe_offset(plane * shape.positions)
            for i in range(count * shape.pixels):
                to[unsafe_offset=i] = 0
            for p in range(shape.positions):
                var s = shape.sample[dtype, mode, spatial](
                    places, item * shape.positions + p
                )
                for channel in range(count):
                    var value = from_[
                        unsafe_offset = channel * shape.positions + p
                    ]
                    var target_plane = to.unsafe_offset(channel * shape.pixels)
                    comptime for t in range(taps):
                        if s.pixels[t] >= 0:
                            target_plane[unsafe_offset=Int(s.pixels[t])] += (
                                value * s.weights[t]
                            )

        @always_inline
        def grid_of(
            at: Int,
        ) {
            var shape, var places, var given, var source, var to_grid
        }:
            var item = at // shape.positions
            var p = at % shape.positions
            var sums = SIMD[dtype, 4](0)
            comptime if mode != "nearest":
                var s = shape.sample[dtype, mode, spatial](places, at)
                for channel in range(shape.channels):
                    var plane = item * shape.channels + channel
                    var from_ = source.unsafe_offset(plane * shape.pixels)
                    var value = given[
                        unsafe_offset = plane * shape.positions + p
                    ]
                    comptime for t in range(taps):
                        if s.pixels[t] >= 0:
                            var pixel = (
                                from_[unsafe_offset=Int(s.pixels[t])] * value
                            )
                            sums[0] += pixel * s.by_x[t]
                            sums[1] += pixel * s.by_y[t]
                            comptime if spatial == 3:
                                sums[2] += pixel * s.by_z[t]
                sums *= s.scales
            comptime for i in range(spatial):
                to_grid[unsafe_offset = at * spatial + i] = sums[i]

        if image_wanted != 0:
            each_line[target=target](
                image_of,
                shape.batch * parts,
                (shape.positions * taps + shape.pixels) * together,
                ctx,
            )
        each_line[target=target](
            grid_of,
            shape.batch * shape.positions,
            (shape.channels + 4) * taps,
            ctx,
        )
