"""Images `[batch, channels, depth, height, width]` read at positions of a grid
`[batch, depth, height, width, 2 or 3]` (x, y and z from -1 to 1)."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.math import ceildiv

from ..core.each import foreach
from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, task_count
from .grid_sample_blocks import BLOCK, Taps
from .grid_sample_taps import Geometry, geometry, taps_of

comptime GRAIN = 16384


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
    var weights = List[Scalar[dtype]](unsafe_uninit_length=tasks * Some.WEIGHTS)
    var np = untracked(numbers.unsafe_ptr())
    var wp = untracked(weights.unsafe_ptr())

    def work(task: Int, lower: Int, upper: Int) {
        var source, var grid, var result, var shape, var blocks, var np, var wp
    }:
        var taps = Some(
            np.unsafe_offset(task * Some.NUMBERS), wp.unsafe_offset(task * Some.WEIGHTS)
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
