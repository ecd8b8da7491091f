"""Convolution as a matrix product: weights times the numbers that each tap meets, a block of channels
and a tile of windows at a time. No matrix is made of the windows: the numbers of one tap lie side by
side in planes, one for each phase of the stride, and in the image itself if there is one tap."""

from std.math import ceildiv
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, sync_parallelize
from ..gemm.bfloat16 import SIDE
from ..gemm.blas import tasks_for
from ..gemm.panels import Matrix, product
from .finish import Finish
from .packed import PANELS, Packed
from .panel_products import panel_space, panel_stretch, product_of_panels
from .pair_tiles import pack_pair_lines, padded_depth, product_of_tiles, tiles_space
from .pairs import pair_planes, pair_rows
from .parts import Parts, is_unpadded
from .planes import Shape, phase_planes
from .tiles import STRETCH, copies, pack_pairs, pack_rows, product_of_taps, space_size, stretch

# Windows of images that are multiplied with the same panels, about.
comptime TOGETHER = 512


def _convolve_points[
    dtype: DType, //
](
    op: Address[dtype],
    xp: Address[dtype],
    wp: Address[dtype],
    shape: Shape,
    finish: Finish[dtype],
):
    """Images of one pixel: a product of matrices as they lie."""
    var tasks = tasks_for(shape.outputs // 16, shape.cost() * 4)
    var cuts = min(tasks, max(1, shape.per_group() // 16))
    var slab = ceildiv(shape.per_group(), cuts)

    def work(
        unit: Int,
    ) {var op, var xp, var wp, var shape, var finish, var cuts, var slab}:
        var group = unit // cuts
        var begun = unit % cuts * slab
        var first = group * shape.per_group() + begun
        var count = min(slab, shape.per_group() - begun)
        if count <= 0:
            return
        var depth = shape.channels()
        var to = op.unsafe_offset(first)
        product(
            shape.batch,
            count,
            depth,
            Matrix(xp.unsafe_offset(group * depth), shape.inputs, 1),
            Matrix(wp.unsafe_offset(first * depth), 1, depth),
            to,
            shape.outputs,
        )
        if not finish.idle():
            for item in range(shape.batch):
                var position = item * shape.outputs
                finish.apply_to_channels(
                    to.unsafe_offset(position), first, position + first, count
                )

    sync_parallelize(work, shape.groups * cuts)


@fieldwise_init
struct _Weights[dtype: DType](TrivialRegisterPassable):
    """Rows of weights of some outputs, `distance` apart. The numbers of `taps` neighbours are of one
    channel, and after them come the next one's; 1 where neighbours are pairs."""

    var rows: Address[Self.dtype]
    var distance: Int
    var taps: Int


def _in_pairs[
    dtype: DType, value_type: DType, //
](
    left: Address[dtype],
    space: Address[dtype],
    given: Address[value_type],
    shape: Shape,
    lines: Int,
    begun: Int,
    some: Int,
) -> _Weights[dtype]:
    """Packs `some` pairs of channels from pair `begun` on for `product_of_taps` of pairs."""
    var taps = shape.taps()
    var steps = some * taps
    if shape.channels() % 2 == 0:
        # Two numbers are a word, where they lie.
        var rows = given.unsafe_bitcast[Scalar[dtype]]()
        var distance = shape.depth() // 2
        if taps == 1:
            pack_rows(left, rows, distance, lines, steps)
        else:
            pack_pairs(left, rows, distance, lines, steps, taps, space)
        return _Weights(rows, distance, taps)
    pair_rows(
        space.unsafe_bitcast[Float32](),
        given.unsafe_bitcast[BFloat16](),
        shape.depth(),
        lines,
        min(2 * some, shape.channels() - 2 * begun),
        taps,
    )
    pack_rows(left, space, steps, lines, steps)
    return _Weights(space, steps, 1)


def _for_tiles[
    dtype: DType, value_type: DType, //
](
    left: Address[dtype],
    given: Address[value_type],
    shape: Shape,
    lines: Int,
    begun: Int,
    some: Int,
) -> _Weights[dtype]:
    """`some` pairs of channels from pair `begun` on for `product_of_tiles`: where they lie, if they
    lie in whole tiles."""
    var taps = shape.taps()
    var steps = some * taps
    # Two numbers are a word, where they lie.
    if taps == 1 and shape.channels() % 2 == 0:
        if steps == padded_depth(steps) and lines % SIDE == 0:
            return _Weights(given.unsafe_bitcast[Scalar[dtype]](), shape.depth() // 2, 1)
    pack_pair_lines(
        left.unsafe_bitcast[Float32](),
        given.unsafe_bitcast[BFloat16](),
        shape.depth(),
        lines,
        min(2 * some, shape.channels() - 2 * begun),
        taps,
    )
    return _Weights(left, padded_depth(steps), 1)


def convolve_by_products[
    dtype: DType, value_type: DType, //, volumes: Bool = False
](
    op: Address[value_type],
    xp: Address[value_type],
    wp: Address[value_type],
    shape: Shape,
    finish: Finish[dtype, value_type],
    packed: Packed[dtype] = Packed[dtype](0),
):
    """A convolution of any sizes; of bfloat16 in pairs of channels, with sums of float32. Its
    weights may be in panels already."""
    comptime pairs = value_type != dtype
    comptime assert not pairs or value_type == DType.bfloat16, "other numbers have no pairs"
    comptime assert not (pairs and volumes), "volumes have no pairs"
    comptime Cut = Parts[dtype, pairs, volumes]
    comptime tiled = Cut.tiled
    comptime slab_rows = Cut.slab_rows
    comptime panel = Cut.panel
    comptime if not pairs and not volumes:
        if is_unpadded[volumes](shape) and shape.plane() == 1 and shape.pixels() == 1:
            _convolve_points(
                op.unsafe_bitcast[Scalar[dtype]](),
                xp.unsafe_bitcast[Scalar[dtype]](),
                wp.unsafe_bitcast[Scalar[dtype]](),
                shape,
                rebind[Finish[dtype]](finish),
            )
            return
    var high = shape.high
    var wide = shape.wide
    var given = packed.made() == PANELS
    var parts = Cut(shape, packed.cuts() if given else 0)
    var taps = parts.taps
    var channels = parts.channels
    var layout = parts.layout
    var extent = parts.extent
    var windows = parts.windows
    var dense = parts.dense
    var plain = parts.plain
    var block = parts.block
    var tasks = parts.tasks
    var tile = parts.tile
    var tiles_count = parts.tiles
    var cuts = parts.cuts
    var slab = parts.slab
    # Small images share the panels of the weights.
    var together = 1
    if not volumes and tiles_count == 1 and cuts == 1:
        # As many as leave the tasks equal shares.
        var share = ceildiv(shape.batch * shape.groups, tasks)
        together = max(1, min(min(share, shape.batch), TOGETHER // windows))
        while (
            together > 1
            and ceildiv(ceildiv(shape.batch, together) * shape.groups, tasks) * together > share
        ):
            together -= 1
    var batches = ceildiv(shape.batch, together)
    var units = batches * shape.groups * cuts * tiles_count
    tasks = min(tasks, units)

    # Where the numbers of each channel and tap begin.
    var most_rows = min(ceildiv(tile, extent) + 1, high.output) + high.step(high.kernel - 1)
    var size = most_rows * extent + layout.step(wide.kernel - 1) + 2 * panel
    var planes = size * high.stride * layout.planes()
    var begins = List[Int](capacity=block * taps)
    for channel in range(block):
        for tap_y in range(high.kernel):
            for tap_x in range(wide.kernel):
                if plain:
                    comptime if volumes:
                        begins.append(shape.slice(0, channel))
                    else:
                        begins.append(channel * shape.plane())
                    continue
                var place = high.phase(tap_y) * layout.planes() + layout.plane(tap_x)
                var at = high.step(tap_y) * extent + layout.step(tap_x)
                begins.append(channel * planes + place * size + at)
    var begin = untracked(begins.unsafe_ptr())
    var lines_here = min(slab, slab_rows)
    var left_space: Int
    var spare_space: Int
    # Of a slab's weights, as pairs, or of a tile's.
    var rows_space = 0
    comptime if tiled:
        left_space = (lines_here + SIDE) * padded_depth(block * taps) + panel
        # A stretch is a panel, or its numbers are no more than STRETCH.
        spare_space = max(tiles_space(block * taps, panel), tiles_space(0, 0) + STRETCH)
    else:
        left_space = 0 if given else lines_here * block * taps + panel
        spare_space = space_size[dtype, pairs](lines_here, block * taps)
        if copies[pairs](slab):
            spare_space = max(spare_space, panel_space[panel](block * taps))
        comptime if pairs:
            rows_space = lines_here * block * taps + simd_width_of[dtype]()
    var sums_space = 0 if dense else together * slab * tile
    var planes_space = 0 if plain else together * block * planes
    var space = left_space + spare_space + sums_space + planes_space + rows_space
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * space)
    var sp = untracked(scratch.unsafe_ptr())

    def work(task: Int, lower: Int, upper: Int) {
        var op, var xp, var wp, var sp, var begin, var space, var left_space, var spare_space,
        var sums_space, var rows_space, var shape, var dense, var plain, var finish, var tile, var tiles_count,
        var together, var cuts, var slab, var block, var channels, var high, var wide,
        var layout, var extent, var windows, var size, var planes, var taps, var parts,
        var packed, var given
    }:
        var left = sp.unsafe_offset(task * space)
        var spare = left.unsafe_offset(left_space)
        var sums = spare.unsafe_offset(spare_space)
        var spare_rows = sums.unsafe_offset(sums_space)
        var images = spare_rows.unsafe_offset(rows_space)
        var apart = shape.apart()
        var plane = shape.plane()
        for unit in range(lower, upper):
            var item = unit // (shape.groups * cuts * tiles_count) * together
            var group = unit // (cuts * tiles_count) % shape.groups
            var cut = unit // tiles_count % cuts
            var start = unit % tiles_count * tile
            var count = min(windows - start, tile)
            var first = group * shape.per_group() + cut * slab
            var rows = min(slab, shape.per_group() - cut * slab)
            if rows <= 0:
                continue
            var images_here = min(together, shape.batch - item)
            var source = xp.unsafe_offset((item * shape.inputs + group * shape.channels()) * plane)
            var place = shape.place(item, first)
            var result = op.unsafe_offset(place)
            var to = sums
            comptime if not pairs:
                if dense:
                    to = result.unsafe_offset(start).unsafe_bitcast[Scalar[dtype]]()
            var row = apart if dense else tile
            # From one image to the next.
            var next_to = shape.outputs * apart if dense else slab * tile
            var next_source = shape.inputs * plane
            var top = start // extent
            var bottom = (start + count - 1) // extent + high.step(high.kernel - 1)
            for begun in range(0, channels, block):
                var some = min(block, channels - begun)
                var steps = some * taps
                comptime each = 2 if pairs else 1
                var from_ = source.unsafe_offset(each * begun * plane)
                comptime if volumes:
                    if plain:
                        from_ = xp.unsafe_offset(shape.slice(item, group * channels + begun))
                var base = images.unsafe_offset(start - top * extent)
                comptime if not pairs:
                    if plain:
                        base = from_.unsafe_offset(start).unsafe_bitcast[Scalar[dtype]]()
                var next_base = next_source if plain else block * planes
                if not plain:
                    for image in range(images_here):
                        for channel in range(some):
                            var from_image = from_.unsafe_offset(
                                image * next_source + each * channel * plane
                            )
                            var planes_here = images.unsafe_offset(
                                image * next_base + channel * planes
                            )
                            var there = high
                            comptime if volumes:
                                var at = shape.slice(item, group * channels + begun + channel)
                                from_image = xp.unsafe_offset(max(at, 0))
                                if at < 0:
                                    there.input = 0  # All rows are padding.
                            comptime if pairs:
                                pair_planes(
                                    planes_here.unsafe_bitcast[Float32](),
                                    size,
                                    from_image.unsafe_bitcast[BFloat16](),
                                    from_image.unsafe_offset(plane).unsafe_bitcast[BFloat16](),
                                    2 * (begun + channel) + 1 < shape.channels(),
                                    there,
                                    layout,
                                    top,
                                    bottom - top + 1,
                                )
                            else:
                                phase_planes(
                                    planes_here,
                                    size,
                                    from_image.unsafe_bitcast[Scalar[dtype]](),
                                    there,
                                    layout,
                                    top,
                                    bottom - top + 1,
                                )
                var finished = dense and begun + some == channels and not finish.idle()
                var then = Finish[dtype].none()
                comptime if not pairs:
                    if finished:
                        then = rebind[Finish[dtype]](finish)
                # Weights that are packed, or packed a tile at a time, need no slabs.
                var by_tiles = copies[pairs](rows) and (given or images_here == 1)
                var slab_here = rows if given or by_tiles else slab_rows
                for i in range(0, rows, slab_here):
                    var lines = min(slab_here, rows - i)
                    var from_rows = wp.unsafe_offset(
                        (first + i) * shape.depth() + each * begun * taps
                    )
                    var panels = left
                    var weights: _Weights[dtype]
                    comptime if tiled:
                        weights = _for_tiles(left, from_rows, shape, lines, begun, some)
                    elif pairs:
                        weights = _in_pairs(left, spare_rows, from_rows, shape, lines, begun, some)
                    else:
                        weights = _Weights(
                            from_rows.unsafe_bitcast[Scalar[dtype]](), shape.depth(), 1
                        )
                        if given:
                            var at = parts.panels_at(shape, group, cut, rows, begun)
                            panels = packed.panels().unsafe_offset(at)
                        elif not by_tiles:
                            pack_rows(left, weights.rows, shape.depth(), lines, steps)
                    var many = stretch[panel, pairs](lines, padded_depth(steps) if tiled else steps)
                    if by_tiles:
                        many = panel_stretch[panel](steps)
                    for image in range(images_here):
                        for at in range(0, count, many):
                            var columns = min(many, count - at)
                            var into = to.unsafe_offset(image * next_to + i * row + at)
                            comptime if tiled:
                                product_of_tiles(
                                    lines,
                                    columns,
                                    steps,
                                    weights.rows.unsafe_bitcast[Float32](),
                                    weights.distance,
                                    base.unsafe_offset(image * next_base + at).unsafe_bitcast[
                                        Float32
                                    ](),
                                    begin,
                                    spare.unsafe_bitcast[Float32](),
                                    into.unsafe_bitcast[Float32](),
                                    row,
                                    begun != 0,
                                    image + at != 0,
                                )
                                continue
                            var numbers = base.unsafe_offset(image * next_base + at)
                            var position = place + image * shape.outputs * apart
                            position += i * apart + start + at
                            comptime if not pairs:
                                if by_tiles:
                                    product_of_panels(
                                        lines,
                                        columns,
                                        steps,
                                        panels if given else weights.rows,
                                        weights.distance,
                                        given,
                                        left,
                                        numbers,
                                        begin,
                                        spare,
                                        into,
                                        row,
                                        begun != 0,
                                        then,
                                        first + i,
                                        position,
                                    )
                                    continue
                            product_of_taps[pairs](
                                lines,
                                columns,
                                steps,
                                weights.rows,
                                weights.distance,
                                panels,
                                numbers,
                                begin,
                                spare,
                                into,
                                row,
                                begun != 0,
                                weights.taps,
                            )
                            if finished:
                                for line in range(lines):
                                    var sum = into.unsafe_offset(line * row)
                                    finish.apply(
                                        sum.unsafe_bitcast[Scalar[value_type]](),
                                        sum,
                                        first + i + line,
                                        position + line * apart,
                                        columns,
                                    )
            if dense:
                continue
            for image in range(images_here):
                for i in range(rows):
                    if extent == wide.output:
                        var position = (image * shape.outputs + i) * apart + start
                        finish.apply(
                            result.unsafe_offset(position),
                            to.unsafe_offset(image * next_to + i * row),
                            first + i,
                            place + position,
                            count,
                        )
                        continue
                    for y in range(top, (start + count - 1) // extent + 1):
                        var x = max(0, start - y * extent)
                        var end = min(start + count - y * extent, wide.output)
                        if end > x:
                            var position = (image * shape.outputs + i) * apart
                            position += y * wide.output + x
                            finish.apply(
                                result.unsafe_offset(position),
                                to.unsafe_offset(
                                    image * next_to + i * row + y * extent + x - start
                                ),
                                first + i,
                                place + position,
                                end - x,
                            )

    in_numbered_ranges(work, units, tasks)
    _ = scratch^
    _ = begins^
