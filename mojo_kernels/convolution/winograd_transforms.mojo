"""The transforms of convolutions after Lavin and Gray (see `winograd.mojo`): vectors of
weights of some outputs, and of numbers of neighbouring tiles."""

from std.math import ceildiv
from std.sys import CompilationTarget, simd_width_of

from ..core.memory import Address
from ..gemm.panels import WIDE
from .finish import Finish
from .planes import Layout, Shape, Window, phase_planes
from .tiles import pack_rows

# Numbers of a transformed tile.
comptime POSITIONS = 16
comptime TAPS = 9
# Channels whose weights are transformed at a time: they stay in the first-level cache.
comptime SOME = 32
# Whether all positions of a channel's tiles are neighbours, so that few pages are written at a time,
# or all channels of a position, so that few are read: Intel's cores know 16 pages to write to.
comptime POSITIONS_TOGETHER = CompilationTarget.has_avx512f()
# What is rounded of larger numbers would drown what belongs to their neighbours in a tile. Nothing
# made of smaller ones overflows.
comptime LARGEST = 65536


@always_inline
def _ordinary[dtype: DType](source: Address[dtype], count: Int) -> Bool:
    """Whether no number is larger than `LARGEST`, infinite or NaN."""
    comptime width = simd_width_of[dtype]()
    comptime assert dtype.is_floating_point(), "float only"
    var fine = SIMD[DType.bool, width](fill=True)
    var i = 0
    while i + width <= count:
        fine &= abs(source.unsafe_load[width=width](i)).le(LARGEST)
        i += width
    var all = fine.reduce_and()
    while i < count:
        all = all and abs(source[unsafe_offset=i]) <= LARGEST
        i += 1
    return all


@fieldwise_init
struct Plan(TrivialRegisterPassable):
    """The sizes of what is in memory. Tiles are counted through all images."""

    var shape: Shape
    # Tiles of a column and of a row of an image.
    var high: Int
    var wide: Int
    # Outputs of a panel of weights, and numbers from one position's panel to the next.
    var rows: Int
    var panel: Int
    # Tiles of a block, room for a line of them, and channels of a block.
    var block: Int
    var row: Int
    var channels: Int
    # Numbers from one channel's tiles of a block to the next, and from one position's.
    var channel_apart: Int
    var position_apart: Int

    @always_inline
    def each(self) -> Int:
        """Tiles of an image."""
        return self.high * self.wide

    @always_inline
    def panels(self) -> Int:
        """Panels of weights."""
        return ceildiv(self.shape.outputs, self.rows)

    @always_inline
    def lines(self, panel: Int) -> Int:
        """Outputs of one panel."""
        return min(self.rows, self.shape.outputs - panel * self.rows)

    @always_inline
    def layout(self) -> Layout:
        """How a padded image lies, as wide as its tiles."""
        var wide = self.shape.wide
        return Layout(Window(wide.input, 2 * self.wide, 3, 1, wide.padding, 1), False)


@no_inline
def transform_weights[
    dtype: DType, //
](
    to: Address[dtype],
    wp: Address[dtype],
    plan: Plan,
    panel: Int,
    first: Int,
    channels: Int,
    space: Address[dtype],
) -> Bool:
    """`G g G^T` of the outputs of a panel and `channels` from `first` on, or False where a number
    is too large. Writes up to a vector past each position's."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, width]
    var depth = plan.shape.depth()
    var rows = plan.lines(panel)
    var source = wp.unsafe_offset(panel * plan.rows * depth + first * TAPS)
    for begun in range(0, channels, SOME):
        var count = min(SOME, channels - begun)
        var from_ = source.unsafe_offset(begun * TAPS)
        for i in range(rows):
            if not _ordinary(from_.unsafe_offset(i * depth), count * TAPS):
                return False
        pack_rows(space, from_, depth, rows, count * TAPS)
        for channel in range(count):
            for chunk in range(0, rows, width):
                var taps = space.unsafe_offset(channel * TAPS * rows + chunk)
                var down = Array[Some, 12](fill=Some(0))
                comptime for x in range(3):
                    var top = taps.unsafe_load[width=width](x * rows)
                    var middle = taps.unsafe_load[width=width]((3 + x) * rows) * 0.5
                    var bottom = taps.unsafe_load[width=width]((6 + x) * rows)
                    var ends = (top + bottom) * 0.5
                    down[x] = top
                    down[3 + x] = ends + middle
                    down[6 + x] = ends - middle
                    down[9 + x] = bottom
                var place = to.unsafe_offset((begun + channel) * rows + chunk)
                comptime for y in range(4):
                    var middle = down[3 * y + 1] * 0.5
                    var ends = (down[3 * y] + down[3 * y + 2]) * 0.5
                    var line = place.unsafe_offset(4 * y * plan.panel)
                    line.unsafe_store[width=width](0, down[3 * y])
                    line.unsafe_store[width=width](plan.panel, ends + middle)
                    line.unsafe_store[width=width](2 * plan.panel, ends - middle)
                    line.unsafe_store[width=width](3 * plan.panel, down[3 * y + 2])
    return True


@always_inline
def _transform_tiles[
    dtype: DType, //
](to: Address[dtype], size: Int, source: Address[dtype], extent: Int):
    """`B^T d B` of a vector of neighbouring tiles, `size` numbers from one position to the next."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, 2 * width]
    # Of each row the numbers from the first tile on, and from the second.
    var rows = Array[Some, 8](fill=Some(0))
    comptime for y in range(4):
        var line = source.unsafe_offset(y * extent)
        comptime for turn in range(2):
            rows[2 * y + turn] = line.unsafe_load[width=2 * width](2 * turn)
    comptime for y in range(4):
        var here = Array[Some, 2](fill=Some(0))
        comptime for turn in range(2):
            comptime if y == 0:
                here[turn] = rows[turn] - rows[4 + turn]
            elif y == 1:
                here[turn] = rows[2 + turn] + rows[4 + turn]
            elif y == 2:
                here[turn] = rows[4 + turn] - rows[2 + turn]
            else:
                here[turn] = rows[2 + turn] - rows[6 + turn]
        var first = here[0].deinterleave()
        var second = here[1].deinterleave()
        var d0 = rebind[SIMD[dtype, width]](first[0])
        var d1 = rebind[SIMD[dtype, width]](first[1])
        var d2 = rebind[SIMD[dtype, width]](second[0])
        var d3 = rebind[SIMD[dtype, width]](second[1])
        var line = to.unsafe_offset(4 * y * size)
        line.unsafe_store[width=width](0, d0 - d2)
        line.unsafe_store[width=width](size, d1 + d2)
        line.unsafe_store[width=width](2 * size, d2 - d1)
        line.unsafe_store[width=width](3 * size, d1 - d3)


@no_inline
def transform_images[
    dtype: DType, //
](
    to: Address[dtype],
    xp: Address[dtype],
    plan: Plan,
    channel: Int,
    channels: Int,
    first: Int,
    count: Int,
    space: Address[dtype],
) -> Bool:
    """`B^T d B` of `count` tiles from `first` on, of `channels` from `channel` on, or False where a
    number is too large. Writes up to a vector past each position's."""
    comptime width = simd_width_of[dtype]()
    comptime columns = WIDE * width
    var shape = plan.shape
    var layout = plan.layout()
    var extent = layout.extent()
    var each = plan.each()
    var at = 0
    while at < count:
        var item = (first + at) // each
        var start = (first + at) % each
        var end = min(each, start + count - at)
        var top = start // plan.wide
        var bottom = (end - 1) // plan.wide + 1
        # Rows of the image that are read.
        var from_row = max(0, 2 * top - shape.high.padding)
        var to_row = min(shape.high.input, 2 * bottom + 2 - shape.high.padding)
        for i in range(channels):
            var place = (item * shape.inputs + channel + i) * shape.plane()
            var image = xp.unsafe_offset(place)
            var numbers = (to_row - from_row) * shape.wide.input
            if not _ordinary(image.unsafe_offset(from_row * shape.wide.input), numbers):
                return False
            var rows = 2 * (bottom - top) + 2
            phase_planes(space, 0, image, shape.high, layout, 2 * top, rows)
            var line = to.unsafe_offset(i * plan.channel_apart + at - start)
            for y in range(top, bottom):
                var x = max(start, y * plan.wide)
                var stop = min(end, (y + 1) * plan.wide)
                while x < stop:
                    var column = 2 * (x - y * plan.wide)
                    _transform_tiles(
                        line.unsafe_offset(x),
                        plan.position_apart,
                        space.unsafe_offset(2 * (y - top) * extent + column),
                        extent,
                    )
                    x += width
        at += end - start
    # The product takes whole panels: what lies in memory may be subnormal, which is slow.
    for lane in range(count, ceildiv(count, columns) * columns, width):
        for i in range(channels):
            var line = to.unsafe_offset(i * plan.channel_apart + lane)
            comptime for position in range(POSITIONS):
                line.unsafe_store(position * plan.position_apart, SIMD[dtype, width](0))
    return True


@always_inline
def _untransform[
    dtype: DType, //
](to: Address[dtype], row: Int, source: Address[dtype], size: Int):
    """`A^T m A` of a vector of tiles: two rows of outputs, `row` apart."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, width]
    var upper = Array[Some, 4](fill=Some(0))
    var lower = Array[Some, 4](fill=Some(0))
    comptime for x in range(4):
        var m1 = source.unsafe_load[width=width]((4 + x) * size)
        var m2 = source.unsafe_load[width=width]((8 + x) * size)
        upper[x] = source.unsafe_load[width=width](x * size) + (m1 + m2)
        lower[x] = (m1 - m2) - source.unsafe_load[width=width]((12 + x) * size)
    var left = upper[0] + (upper[1] + upper[2])
    to.unsafe_store(0, left.interleave((upper[1] - upper[2]) - upper[3]))
    left = lower[0] + (lower[1] + lower[2])
    to.unsafe_store(row, left.interleave((lower[1] - lower[2]) - lower[3]))


@no_inline
def finish_block[
    dtype: DType, //
](
    op: Address[dtype],
    source: Address[dtype],
    plan: Plan,
    finish: Finish[dtype],
    channel: Int,
    first: Int,
    count: Int,
    space: Address[dtype],
):
    """Finishes an output channel's tiles `first` to `first + count` from their sums."""
    comptime width = simd_width_of[dtype]()
    var shape = plan.shape
    var each = plan.each()
    # Of two rows of outputs.
    var row = 2 * plan.row
    for i in range(0, count, width):
        var sums = source.unsafe_offset(i)
        _untransform(space.unsafe_offset(2 * i), row, sums, plan.rows * plan.row)
    var item = first // each
    var y = first % each // plan.wide
    var x = first % plan.wide
    var at = 0
    while at < count:
        var some = min(plan.wide - x, count - at)
        var place = (item * shape.outputs + channel) * shape.pixels()
        place += 2 * y * shape.wide.output + 2 * x
        var columns = min(2 * some, shape.wide.output - 2 * x)
        for turn in range(min(2, shape.high.output - 2 * y)):
            finish.apply(
                op.unsafe_offset(place),
                space.unsafe_offset(turn * row + 2 * at),
                channel,
                place,
                columns,
            )
            place += shape.wide.output
        at += some
        x = 0
        y += 1
        if y == plan.high:
            y = 0
            item += 1
