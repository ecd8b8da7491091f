"""Images `[batch, channels, depth, height, width]` read at positions of a grid
`[batch, depth, height, width, 2 or 3]` (x, y and z from -1 to 1)."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import ceildiv, floor
from std.sys import simd_width_of

from ..core.each import foreach
from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, task_count
from .grid_sample_taps import Geometry, geometry, nearest, pixels_or_zeros, taps_of

comptime GRAIN = 16384
# Positions at a time: their taps stay in the cache.
comptime BLOCK = 128


@fieldwise_init
struct Taps[dtype: DType, mode: StaticString, spatial: Int](TrivialRegisterPassable):
    """The taps of a block of positions, one tap of all positions after the other.

    Two linear taps that lie side by side are one load, the lower first, if an image has two columns.

    Fields:
        pixels: Pixels of a plane, -1 for those outside.
        weights: What they are multiplied by.
        pairs: Of two taps that lie side by side, where both are in the image.
    """

    comptime TAPS = taps_of[Self.mode, Self.spatial]()
    # Numbers of pixels that a block takes.
    comptime NUMBERS = BLOCK * (Self.TAPS + Self.TAPS // 2)

    var pixels: Address[DType.int32]
    var weights: Address[Self.dtype]
    var pairs: Address[DType.int32]

    def __init__(out self, numbers: Address[DType.int32], weights: Address[Self.dtype]):
        self.pixels = numbers
        self.weights = weights
        self.pairs = numbers.unsafe_offset(Self.TAPS * BLOCK)

    def fill(self, shape: Geometry, grid: Address[Self.dtype], at: Int, count: Int):
        """Find the taps of positions, as many as a block has at most."""
        comptime if Self.mode == "cubic":
            for p in range(count):
                var s = shape.sample[Self.dtype, Self.mode, Self.spatial](grid, at + p)
                comptime for t in range(Self.TAPS):
                    self.pixels[unsafe_offset = t * BLOCK + p] = s.pixels[t]
                    self.weights[unsafe_offset = t * BLOCK + p] = s.weights[t]
        else:
            comptime width = simd_width_of[Self.dtype]()
            var p = 0
            while p + width <= count:
                self._fill_some[width](shape, grid, at + p, p)
                p += width
            while p < count:
                self._fill_some[1](shape, grid, at + p, p)
                p += 1

    @always_inline
    def _fill_some[
        width: Int
    ](self, shape: Geometry, grid: Address[Self.dtype], at: Int, p: Int):
        comptime Some = SIMD[Self.dtype, width]
        comptime Pixels = SIMD[DType.int32, width]
        var x = Some(0)
        var y = Some(0)
        var z = Some(0)
        comptime for lane in range(width):
            var from_ = grid.unsafe_offset((at + lane) * Self.spatial)
            x[lane] = from_[unsafe_offset=0]
            y[lane] = from_[unsafe_offset=1]
            comptime if Self.spatial == 3:
                z[lane] = from_[unsafe_offset=2]
        x = shape.wide.bounded[spatial = Self.spatial](
            shape.wide.place[spatial = Self.spatial](x)
        )[0]
        y = shape.high.bounded[spatial = Self.spatial](
            shape.high.place[spatial = Self.spatial](y)
        )[0]
        comptime if Self.spatial == 3:
            z = shape.deep.bounded[spatial = Self.spatial](
                shape.deep.place[spatial = Self.spatial](z)
            )[0]
        comptime none = Pixels(-1)
        comptime zero = Pixels(0)
        var high = Int32(shape.high.size)
        var wide = Int32(shape.wide.size)
        comptime if Self.mode == "nearest":
            var column = shape.wide.index(nearest(x))
            var line = shape.high.index(nearest(y))
            var inside = column.ge(zero) & line.ge(zero)
            comptime if Self.spatial == 3:
                var slice = shape.deep.index(nearest(z))
                inside &= slice.ge(zero)
                line += slice * high
            self.pixels.unsafe_store(p, inside.select(line * wide + column, none))
        else:
            var left = floor(x)
            var top = floor(y)
            var front = floor(z)
            var tx = x - left
            var ty = y - top
            var tz = z - front
            var first = shape.wide.index(left)
            var second = shape.wide.index(left + 1)
            var lower = 1 - tx
            var upper = tx
            # At an edge one of two is outside: the pair lies one further in.
            var turned = (first | second).lt(zero) & Pixels(wide).gt(Pixels(1))
            var column = turned.select(second, first)
            second = turned.select(first, second)
            first = column
            lower = turned.select(upper, lower)
            upper = turned.select(1 - tx, upper)
            var begin = max(max(first, second - 1), zero)
            comptime for r in range(Self.TAPS // 2):
                var line = shape.high.index(top + Some(r % 2))
                var weight = ty if r % 2 == 1 else 1 - ty
                var inside = line.ge(zero)
                comptime if Self.spatial == 3:
                    var slice = shape.deep.index(front + Some(r // 2))
                    inside &= slice.ge(zero)
                    line += slice * high
                    weight *= tz if r // 2 == 1 else 1 - tz
                line = inside.select(line * wide, zero)
                self.pairs.unsafe_store(r * BLOCK + p, line + begin)
                self._store(2 * r, p, line + first, inside & first.ge(zero), lower * weight)
                self._store(2 * r + 1, p, line + second, inside & second.ge(zero), upper * weight)

    @always_inline
    def _store[
        width: Int
    ](
        self,
        tap: Int,
        p: Int,
        pixels: SIMD[DType.int32, width],
        inside: SIMD[DType.bool, width],
        weights: SIMD[Self.dtype, width],
    ):
        var kept = weights
        comptime if Self.spatial == 3:
            # No pixel, no term; in planes such a pixel counts as 0.
            kept = inside.select(weights, SIMD[Self.dtype, width](0))
        var at = tap * BLOCK + p
        self.pixels.unsafe_store(at, inside.select(pixels, SIMD[DType.int32, width](-1)))
        self.weights.unsafe_store(at, kept)

    @always_inline
    def sums[
        width: Int, *, paired: Bool
    ](self, plane: Address[Self.dtype], p: Int) -> SIMD[Self.dtype, width]:
        """What a plane has at positions of the block."""
        comptime Some = SIMD[Self.dtype, width]
        var sum = Some(0)
        comptime if paired:
            comptime for r in range(Self.TAPS // 2):
                var both = SIMD[Self.dtype, 2 * width](0)
                comptime for lane in range(width):
                    var at = Int(self.pairs[unsafe_offset = r * BLOCK + p + lane])
                    both = both.insert[offset = 2 * lane](plane.unsafe_load[width=2](at))
                var pair = both.deinterleave()
                comptime for side in range(2):
                    var at = (2 * r + side) * BLOCK + p
                    var inside = self.pixels.unsafe_load[width=width](at).ge(
                        SIMD[DType.int32, width](0)
                    )
                    var value = inside.select(rebind[Some](pair[side]), Some(0))
                    sum = value.fma(self.weights.unsafe_load[width=width](at), sum)
            return sum
        comptime for t in range(Self.TAPS):
            var at = t * BLOCK + p
            var value = pixels_or_zeros(plane, self.pixels.unsafe_load[width=width](at))
            comptime if Self.TAPS == 1:
                sum = value
            else:
                sum = value.fma(self.weights.unsafe_load[width=width](at), sum)
        return sum

    def store_sums[
        *, paired: Bool
    ](self, plane: Address[Self.dtype], to: Address[Self.dtype], count: Int):
        """Store what a plane has at the positions of the block."""
        comptime width = simd_width_of[Self.dtype]()
        var p = 0
        while p + width <= count:
            to.unsafe_store(p, self.sums[width, paired=paired](plane, p))
            p += width
        while p < count:
            to[unsafe_offset=p] = self.sums[1, paired=paired](plane, p)
            p += 1


def _sample_all[
    dtype: DType, //, mode: StaticString, spatial: Int
](
    source: Address[dtype],
    grid: Address[dtype],
    result: Address[dtype],
    shape: Geometry,
):
    """Threads take blocks of positions."""
    comptime Some = Taps[dtype, mode, spatial]
    var blocks = ceildiv(shape.positions, BLOCK)
    var units = shape.batch * blocks
    var cost = shape.batch * shape.positions * (shape.channels + 4) * Some.TAPS
    var tasks = task_count(units, cost, GRAIN)
    var numbers = List[Int32](unsafe_uninit_length=tasks * Some.NUMBERS)
    var weights = List[Scalar[dtype]](unsafe_uninit_length=tasks * Some.TAPS * BLOCK)
    var np = untracked(numbers.unsafe_ptr())
    var wp = untracked(weights.unsafe_ptr())

    def work(task: Int, lower: Int, upper: Int) {
        var source, var grid, var result, var shape, var blocks, var np, var wp
    }:
        var taps = Some(
            np.unsafe_offset(task * Some.NUMBERS), wp.unsafe_offset(task * Some.TAPS * BLOCK)
        )
        var paired = shape.wide.size > 1
        for unit in range(lower, upper):
            var item = unit // blocks
            var begin = unit % blocks * BLOCK
            var count = min(BLOCK, shape.positions - begin)
            taps.fill(shape, grid, item * shape.positions + begin, count)
            for channel in range(shape.channels):
                var plane = item * shape.channels + channel
                var from_ = source.unsafe_offset(plane * shape.pixels)
                var to = result.unsafe_offset(plane * shape.positions + begin)
                comptime if mode == "linear":
                    if paired:
                        taps.store_sums[paired=True](from_, to, count)
                        continue
                taps.store_sums[paired=False](from_, to, count)

    in_numbered_ranges(work, units, tasks)
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
        var shape = geometry(
            x.dim_size[0](),
            x.dim_size[1](),
            Tuple(x.dim_size[2](), x.dim_size[3](), x.dim_size[4]()),
            grid.dim_size[1]() * grid.dim_size[2]() * grid.dim_size[3](),
            Int(padding),
            align != 0,
        )
        var source = untracked(x.unsafe_ptr())
        var places = untracked(grid.unsafe_ptr())
        comptime if target == "cpu":
            _sample_all[mode, spatial](
                source,
                places,
                untracked(output.unsafe_ptr()),
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
