"""Convolutions with 3x3 windows side by side, with fewer multiplications: of a channel 16 for a
tile of 2x2 outputs instead of 36. F(2x2, 3x3) of Lavin and Gray, "Fast Algorithms for Convolutional
Neural Networks" (2015): `A^T ((G g G^T) * (B^T d B)) A`. The sums over channels are taken in the
middle: each of the 16 positions has a product of matrices `[outputs, channels]` and
`[channels, tiles]`."""

from std.math import ceildiv
from std.sys import CompilationTarget, simd_width_of, size_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges
from ..gemm.blas import tasks_for
from ..gemm.panels import WIDE, _high
from .finish import Finish
from .packed import PANELS, TRANSFORMED, Packed
from .planes import Shape
from .tiles import Offsets, tiles
from .winograd_transforms import (
    POSITIONS,
    POSITIONS_TOGETHER,
    SOME,
    TAPS,
    Plan,
    finish_block,
    transform_images,
    transform_weights,
)

# Bytes of the transformed tiles of a block: they stay in the second-level cache. Processors without
# AVX-512 have a smaller one.
comptime BLOCK = 786432 if CompilationTarget.has_avx512f() else 393216
# Tiles of a block, if there are as many: the sums of fewer are too often read and written.
comptime FEWEST = 128
# Channels and outputs whose products cost more than the transforms.
comptime MANY = 32
# Tiles whose products cost as much as the transform of the weights.
comptime WEIGHTS = 16


@always_inline
def suits_winograd[dtype: DType](shape: Shape, weights: Int = WEIGHTS) -> Bool:
    """Whether `convolve_by_winograd` can make a convolution, and in less time than products of all
    taps; `weights` is the cost of their transform, in tiles."""
    comptime columns = WIDE * simd_width_of[dtype]()
    var high = shape.high
    var wide = shape.wide
    if high.kernel != 3 or wide.kernel != 3 or shape.groups != 1:
        return False
    if high.stride * wide.stride * high.dilation * wide.dilation != 1:
        return False
    if min(shape.inputs, shape.outputs) < MANY:
        return False
    var count = shape.batch * ceildiv(high.output, 2) * ceildiv(wide.output, 2)
    var multiplied = ceildiv(count, columns) * columns + weights
    return POSITIONS * multiplied <= TAPS * shape.batch * shape.pixels()


@always_inline
def _lines_apart(count: Int, width: Int) -> Int:
    """Room for so many numbers and a vector: an odd number of vectors, so that few fall into the
    same set of a cache."""
    return ((ceildiv(count, width) + 1) // 2 * 2 + 1) * width


@always_inline
def _columns[
    dtype: DType, //
](
    count: Int,
    rows: Int,
    a: Address[dtype],
    b: Address[dtype],
    offsets: Offsets,
    depth: Int,
    c: Address[dtype],
    row: Int,
    added: Bool,
):
    """`tiles` of `count` columns, a last vector of them alone."""
    comptime width = simd_width_of[dtype]()
    var vectors = ceildiv(count, width)
    tiles[WIDE, True](vectors // WIDE, rows, a, b, offsets, depth, c, row, added)
    if vectors % WIDE != 0:
        var done = vectors // WIDE * WIDE * width
        var to = c.unsafe_offset(done)
        tiles[1, True](vectors % WIDE, rows, a, b.unsafe_offset(done), offsets, depth, to, row, added)


@always_inline
def _panel_rows(outputs: Int) -> Int:
    """Outputs of a panel of weights."""
    return ceildiv(outputs, ceildiv(outputs, _high()))


@always_inline
def _panel_size[dtype: DType](rows: Int, depth: Int) -> Int:
    """Numbers from one position's panel to the next."""
    return _lines_apart(depth * rows, simd_width_of[dtype]())


@always_inline
def transformed_size[dtype: DType](shape: Shape) -> Int:
    """Numbers of all transformed weights."""
    var rows = _panel_rows(shape.outputs)
    return ceildiv(shape.outputs, rows) * POSITIONS * _panel_size[dtype](rows, shape.inputs)


def transform_all[
    dtype: DType, //
](up: Address[dtype], wp: Address[dtype], shape: Shape, tasks: Int) -> Bool:
    """Transforms all weights, or returns False where a number is too large."""
    comptime columns = WIDE * simd_width_of[dtype]()
    var rows = _panel_rows(shape.outputs)
    var size = _panel_size[dtype](rows, shape.inputs)
    # No tiles.
    var plan = Plan(shape, 0, 0, rows, size, 0, 0, 0, 0, 0)
    var panels = plan.panels()
    var fine = List[Bool](length=tasks, fill=True)
    var fp = untracked(fine.unsafe_ptr())
    var space = SOME * TAPS * rows + columns
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * space)
    var sp = untracked(scratch.unsafe_ptr())

    def prepare(task: Int, lower: Int, upper: Int) {
        var up, var wp, var fp, var sp, var plan, var space
    }:
        for panel in range(lower, upper):
            var to = up.unsafe_offset(panel * POSITIONS * plan.panel)
            var spare = sp.unsafe_offset(task * space)
            if not transform_weights(to, wp, plan, panel, 0, plan.shape.inputs, spare):
                fp[unsafe_offset=task] = False
                return

    in_numbered_ranges(prepare, panels, tasks)
    var good = True
    for task in range(tasks):
        good = good and fine[task]
    _ = fine^
    _ = scratch^
    return good


def convolve_by_winograd[
    dtype: DType, //
](
    op: Address[dtype],
    xp: Address[dtype],
    wp: Address[dtype],
    shape: Shape,
    finish: Finish[dtype],
    packed: Packed[dtype],
) -> Bool:
    """A convolution that `suits_winograd`, of weights that may be transformed already. False, and
    no result, if numbers are too large."""
    comptime width = simd_width_of[dtype]()
    comptime columns = WIDE * width
    var channels = shape.inputs
    var high = ceildiv(shape.high.output, 2)
    var wide = ceildiv(shape.wide.output, 2)
    var count = shape.batch * high * wide
    var tasks = tasks_for(shape.batch * shape.outputs * shape.pixels(), shape.cost())
    var most = BLOCK // (POSITIONS * channels * size_of[Scalar[dtype]]())
    most = max(FEWEST, most // columns * columns)
    var blocks = ceildiv(count, most)
    if blocks > 1:
        blocks = ceildiv(blocks, tasks) * tasks
    var block = ceildiv(ceildiv(count, blocks), columns) * columns
    blocks = ceildiv(count, block)
    var row = _lines_apart(block, width)
    var channels_each = max(1, BLOCK // ((POSITIONS + 1) * row * size_of[Scalar[dtype]]()))
    var stages = ceildiv(channels, channels_each)
    channels_each = ceildiv(channels, stages)
    # Weights that are used more than once are transformed before.
    var given = packed.made() == TRANSFORMED
    var before = blocks > 1 or given
    var rows = _panel_rows(shape.outputs)
    var panel_depth = channels if before else channels_each
    var channel_apart = row
    var position_apart = _lines_apart(channels_each * row, width)
    comptime if POSITIONS_TOGETHER:
        channel_apart = (POSITIONS + 1) * row
        position_apart = row
    var plan = Plan(
        shape,
        high,
        wide,
        rows,
        _panel_size[dtype](rows, panel_depth),
        block,
        row,
        channels_each,
        channel_apart,
        position_apart,
    )
    var panels = plan.panels()
    # Parts of the outputs, if there are too few blocks; each transforms the tiles.
    var panels_each = ceildiv(panels, max(1, min(tasks // blocks, panels)))
    var cuts = ceildiv(panels, panels_each)
    var units = blocks * cuts

    var offsets = List[Int](capacity=channels_each)
    for channel in range(channels_each):
        offsets.append(channel * channel_apart)
    var offset = untracked(offsets.unsafe_ptr())
    var fine = List[Bool](length=tasks, fill=True)
    var fp = untracked(fine.unsafe_ptr())
    var weights_space = (panels if before else tasks) * POSITIONS * plan.panel
    var weights = List[Scalar[dtype]](unsafe_uninit_length=0 if given else weights_space)
    var up = packed.panels() if given else untracked(weights.unsafe_ptr())
    var tiles_space = max(channels_each * channel_apart, POSITIONS * position_apart)
    var panel_sums = POSITIONS * rows * plan.row
    var sums_space = panel_sums * (1 if stages == 1 else panels_each)
    var image_rows = 2 * min(high, block // wide + 2) + 2
    var image_space = image_rows * (2 * wide + 2) + 2 * columns + 2
    image_space = max(max(image_space, 4 * plan.row), SOME * TAPS * rows + columns)
    var space = tiles_space + sums_space + image_space
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * space)
    var sp = untracked(scratch.unsafe_ptr())

    var good = True
    if before and not given:
        good = transform_all(up, wp, shape, tasks)

    def work(task: Int, lower: Int, upper: Int) {
        var op, var xp, var wp, var up, var fp, var sp, var offset, var plan, var finish,
        var space, var tiles_space, var sums_space, var panel_sums, var stages, var before,
        var cuts, var count, var panels, var panels_each
    }:
        var channels = plan.shape.inputs
        var transformed = sp.unsafe_offset(task * space)
        var all_sums = transformed.unsafe_offset(tiles_space)
        var spare = all_sums.unsafe_offset(sums_space)
        for unit in range(lower, upper):
            var first = unit // cuts * plan.block
            var some = min(plan.block, count - first)
            var begun = unit % cuts * panels_each
            for channel in range(0, channels, plan.channels):
                var depth = min(plan.channels, channels - channel)
                if not transform_images(
                    transformed, xp, plan, channel, depth, first, some, spare
                ):
                    fp[unsafe_offset=task] = False
                    return
                for panel in range(begun, min(panels, begun + panels_each)):
                    var lines = plan.lines(panel)
                    var left = up.unsafe_offset(
                        (panel if before else task) * POSITIONS * plan.panel
                    )
                    if before:
                        left = left.unsafe_offset(channel * lines)
                    elif not transform_weights(left, wp, plan, panel, channel, depth, spare):
                        fp[unsafe_offset=task] = False
                        return
                    var sums = all_sums
                    if stages > 1:
                        sums = all_sums.unsafe_offset((panel - begun) * panel_sums)
                    for position in range(POSITIONS):
                        _columns(
                            some,
                            lines,
                            left.unsafe_offset(position * plan.panel),
                            transformed.unsafe_offset(position * plan.position_apart),
                            offset,
                            depth,
                            sums.unsafe_offset(position * plan.rows * plan.row),
                            plan.row,
                            channel != 0,
                        )
                    if channel + depth < channels:
                        continue
                    for line in range(lines):
                        finish_block(
                            op,
                            sums.unsafe_offset(line * plan.row),
                            plan,
                            finish,
                            panel * plan.rows + line,
                            first,
                            some,
                            spare,
                        )

    if good:
        in_numbered_ranges(work, units, tasks)
        for task in range(tasks):
            good = good and fine[task]
    _ = fine^
    _ = offsets^
    _ = weights^
    _ = scratch^
    return good


@always_inline
def convolved_by_winograd[
    dtype: DType, //
](
    op: Address[dtype],
    xp: Address[dtype],
    wp: Address[dtype],
    shape: Shape,
    finish: Finish[dtype],
    packed: Packed[dtype],
) -> Bool:
    """A convolution if it is made faster this way, and whether it was made."""
    comptime if dtype == DType.float32:
        var made = packed.made()
        if made == PANELS or (made != TRANSFORMED and not suits_winograd[dtype](shape)):
            return False
        return convolve_by_winograd(op, xp, wp, shape, finish, packed)
    else:
        return False
