"""The gradient of sampling images at positions of a grid, by the image and by the grid.

On CPU the taps of a block of positions are computed once and used for many channels."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.memory import unsafe_memset_zero
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load

from ..core.lines import each_line
from ..core.memory import Address, untracked
from ..core.team import in_ranges, parallelism_level, task_count
from ..core.vectors import below
from .grid_sample_blocks import BLOCK, Taps
from .grid_sample_taps import Geometry, geometry, pixels_or_zeros, taps_of

comptime GRAIN = 16384


def _by_image[
    dtype: DType, //, mode: StaticString, spatial: Int
](given: Address[dtype], grid: Address[dtype], to: Address[dtype], shape: Geometry):
    """Threads take the planes of some channels."""
    comptime taps = taps_of[mode, spatial]()
    # Channels at a time: as many as leave a plane for each thread.
    var threads = parallelism_level(None)
    var together = max(1, min(64, shape.batch * shape.channels // (4 * threads)))
    var parts = ceildiv(shape.channels, together)
    var units = shape.batch * parts
    var cost = units * (shape.positions * taps + shape.pixels) * together

    def work(lower: Int, upper: Int) {
        var given, var grid, var to, var shape, var together, var parts
    }:
        comptime Some = Taps[dtype, mode, spatial]
        var pixels = List[Int32](unsafe_uninit_length=Some.NUMBERS)
        var weights = List[Scalar[dtype]](unsafe_uninit_length=Some.WEIGHTS)
        var block = Some(untracked(pixels.unsafe_ptr()), untracked(weights.unsafe_ptr()))
        comptime if mode == "nearest":
            for p in range(BLOCK):
                weights[p] = 1
        for unit in range(lower, upper):
            var item = unit // parts
            var first = unit % parts * together
            var channels = min(together, shape.channels - first)
            var plane = item * shape.channels + first
            unsafe_memset_zero(
                to.unsafe_offset(plane * shape.pixels), count=channels * shape.pixels
            )
            for start in range(0, shape.positions, BLOCK):
                var count = min(BLOCK, shape.positions - start)
                block.fill(shape, grid, item * shape.positions + start, count)
                for channel in range(channels):
                    _add_image[taps](
                        to.unsafe_offset((plane + channel) * shape.pixels),
                        given.unsafe_offset((plane + channel) * shape.positions + start),
                        block.pixels,
                        block.weights,
                        count,
                    )
        _ = pixels^
        _ = weights^

    in_ranges(work, units, task_count(units, cost, GRAIN))


@always_inline
def _add_image[
    dtype: DType, //, taps: Int
](
    image: Address[dtype],
    given: Address[dtype],
    pixels: Address[DType.int32],
    weights: Address[dtype],
    count: Int,
):
    """What a block of positions adds to the gradient of a plane."""
    for p in range(count):
        var value = given[unsafe_offset=p]
        comptime for t in range(taps):
            var pixel = Int(pixels[unsafe_offset = t * BLOCK + p])
            if pixel >= 0:
                image[unsafe_offset=pixel] += value * weights[unsafe_offset = t * BLOCK + p]


def _by_grid[
    dtype: DType, //, mode: StaticString, spatial: Int
](
    given: Address[dtype],
    source: Address[dtype],
    grid: Address[dtype],
    to: Address[dtype],
    shape: Geometry,
):
    """Threads take blocks of positions."""
    comptime taps = taps_of[mode, spatial]()
    var blocks = ceildiv(shape.positions, BLOCK)
    var units = shape.batch * blocks
    var cost = units * (shape.channels + 4) * taps * BLOCK

    def work(lower: Int, upper: Int) {
        var given, var source, var grid, var to, var shape, var blocks
    }:
        comptime Some = Taps[dtype, mode, spatial, sloped=True]
        var pixels = List[Int32](unsafe_uninit_length=Some.NUMBERS)
        var slopes = List[Scalar[dtype]](unsafe_uninit_length=Some.WEIGHTS)
        var sums = List[Scalar[dtype]](unsafe_uninit_length=spatial * BLOCK)
        var block = Some(untracked(pixels.unsafe_ptr()), untracked(slopes.unsafe_ptr()))
        var paired = shape.wide.size > 1
        for unit in range(lower, upper):
            var item = unit // blocks
            var start = unit % blocks * BLOCK
            var count = min(BLOCK, shape.positions - start)
            block.fill(shape, grid, item * shape.positions + start, count)
            block.pad(count)
            for i in range(spatial * BLOCK):
                sums[i] = 0
            for channel in range(shape.channels):
                var plane = item * shape.channels + channel
                var to_sums = untracked(sums.unsafe_ptr())
                var values = given.unsafe_offset(plane * shape.positions + start)
                var from_ = source.unsafe_offset(plane * shape.pixels)
                comptime if mode == "linear":
                    if paired:
                        _add_slopes[paired=True](to_sums, values, from_, block, count)
                        continue
                _add_slopes[paired=False](to_sums, values, from_, block, count)
            for p in range(count):
                comptime for i in range(spatial):
                    to[unsafe_offset = (item * shape.positions + start + p) * spatial + i] = (
                        sums[i * BLOCK + p] * block.scales(i)[unsafe_offset=p]
                    )
        _ = pixels^
        _ = slopes^
        _ = sums^

    in_ranges(work, units, task_count(units, cost, GRAIN))


@always_inline
def _add_slopes[
    dtype: DType, mode: StaticString, spatial: Int, //, *, paired: Bool
](
    sums: Address[dtype],
    given: Address[dtype],
    plane: Address[dtype],
    block: Taps[dtype, mode, spatial, True],
    count: Int,
):
    """What one channel adds to the gradient of a block of positions."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, width]
    comptime taps = taps_of[mode, spatial]()
    for at in range(0, count, width):
        var value = masked_load[width](given.unsafe_offset(at), below[width](count - at), Some(0))
        var total = Array[Some, spatial](fill=0)
        comptime for i in range(spatial):
            total[i] = sums.unsafe_load[width=width](i * BLOCK + at)
        comptime for r in range(taps // 2):
            comptime for side in range(2):
                comptime t = 2 * r + side
                var pixel = Some(0)
                comptime if paired:
                    pixel = block.pair[width](plane, r, at)[side]
                else:
                    pixel = pixels_or_zeros(
                        plane, block.pixels.unsafe_load[width=width](t * BLOCK + at)
                    )
                # Not 0 times an infinite gradient.
                var product = block.outside[width](t, at).select(Some(0), pixel * value)
                comptime for i in range(spatial):
                    var slope = block.slopes(i).unsafe_load[width=width](t * BLOCK + at)
                    total[i] = product.fma(slope, total[i])
        comptime for i in range(spatial):
            sums.unsafe_store(i * BLOCK + at, total[i])


@register("tmb_grid_sample_backward")
struct GridSampleBackward:
    """The gradients by the image, if it is wanted, and by the grid, if that has elements. Planes of the image and positions of the grid
    are summed by one thread each, in a fixed order."""

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
        var given = untracked(gradient.unsafe_ptr())
        var to_image = untracked(by_image.unsafe_ptr())
        var to_grid = untracked(by_grid.unsafe_ptr())
        comptime if target == "cpu":
            if image_wanted != 0:
                _by_image[mode, spatial](given, places, to_image, shape)
            if by_grid.size() == 0:
                return
            comptime if mode == "nearest":
                unsafe_memset_zero(to_grid, count=by_grid.size())
            else:
                _by_grid[mode, spatial](given, source, places, to_grid, shape)
            return

        @always_inline
        def image_of(
            plane: Int,
        ) {
            var shape, var places, var given, var to_image
        }:
            var to = to_image.unsafe_offset(plane * shape.pixels)
            var from_ = given.unsafe_offset(plane * shape.positions)
            for i in range(shape.pixels):
                to[unsafe_offset=i] = 0
            for p in range(shape.positions):
                var s = shape.sample[dtype, mode, spatial](
                    places, plane // shape.channels * shape.positions + p
                )
                var value = from_[unsafe_offset=p]
                comptime for t in range(taps):
                    if s.pixels[t] >= 0:
                        to[unsafe_offset=Int(s.pixels[t])] += value * s.weights[t]

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
                shape.batch * shape.channels,
                shape.positions * taps + shape.pixels,
                ctx,
            )
        if by_grid.size() == 0:
            return
        each_line[target=target](
            grid_of,
            shape.batch * shape.positions,
            (shape.channels + 4) * taps,
            ctx,
        )
