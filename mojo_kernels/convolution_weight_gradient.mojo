"""The gradient of a convolution's weights: each is the dot product of an output channel's gradient
and what its tap meets, over the pixels of all images. The numbers that a tap meets lie side by side in
planes, as for the convolution itself; a few outputs and a few taps are computed together in registers,
a stretch of pixels at a time that the caches hold."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.memory import Pointer
from std.sys import simd_width_of, size_of
from std.sys.intrinsics import masked_load

from .blas import tasks_for
from .convolution_planes import Layout, Shape, Window, phase_planes
from .panels import Address
from .team import sync_parallelize
from .vectors import below, totals

# Pixels of an output channel's gradient at a time: those of a tile stay in the first-level cache.
comptime STRETCH = 2048
# Bytes of the planes that all tiles of outputs are multiplied with in turn: in the second one.
comptime PLANES = 393216
# Outputs and taps of a tile.
comptime DOWN = 4
comptime ACROSS = 6
# Taps of a tile where a group has few outputs.
comptime ALONE = 9

comptime Begins = Pointer[Int, MutAnyOrigin]


@no_inline
def _dots[
    dtype: DType, //, down: Int, across: Int
](
    gradient: Address[dtype],
    row: Int,
    gradient_image: Int,
    planes: Address[dtype],
    begins: Begins,
    plane_image: Int,
    images: Int,
    pixels: Int,
    rows: Int,
    columns: Int,
    to: Address[dtype],
    to_row: Int,
    added: Bool,
):
    """Dot products of up to `down` rows of the gradient, which lie `row` apart, and up to `across`
    lines that begin at `begins`, over `pixels` of some `images`; `added` to what is there."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, width]
    comptime part = min(width, 8)
    comptime size = ceildiv(down * across, part) * part
    var sums = Array[Some, size](fill=Some(0))
    var left = Array[Address[dtype], down](fill=gradient)
    comptime for r in range(down):
        left[r] = gradient.unsafe_offset(min(r, rows - 1) * row)
    var right = Array[Address[dtype], across](fill=planes)
    comptime for s in range(across):
        right[s] = planes.unsafe_offset(begins[unsafe_offset = min(s, columns - 1)])
    var whole = pixels // width * width
    var inside = below[width](pixels - whole)
    for image in range(images):
        var from_left = image * gradient_image
        var from_right = image * plane_image
        for q in range(0, whole, width):
            var factors = Array[Some, down](fill=Some(0))
            comptime for r in range(down):
                factors[r] = left[r].unsafe_load[width=width](from_left + q)
            comptime for s in range(across):
                var v = right[s].unsafe_load[width=width](from_right + q)
                comptime for r in range(down):
                    sums[r * across + s] = factors[r].fma(v, sums[r * across + s])
        if whole < pixels:
            var factors = Array[Some, down](fill=Some(0))
            comptime for r in range(down):
                var place = left[r].unsafe_offset(from_left + whole)
                factors[r] = masked_load[width](place, inside, Some(0))
            comptime for s in range(across):
                var place = right[s].unsafe_offset(from_right + whole)
                var v = masked_load[width](place, inside, Some(0))
                comptime for r in range(down):
                    sums[r * across + s] = factors[r].fma(v, sums[r * across + s])
    var found = Array[Scalar[dtype], size](fill=0)
    comptime for i in range(0, size, part):
        var some = totals[part](sums, i)
        comptime for j in range(part):
            found[i + j] = some[j]
    for r in range(rows):
        for s in range(columns):
            var place = r * to_row + s
            var v = found[r * across + s]
            to[unsafe_offset=place] = to[unsafe_offset=place] + v if added else v


def convolution_weight_gradient[
    dtype: DType, //
](op: Address[dtype], gp: Address[dtype], xp: Address[dtype], shape: Shape):
    """Writes `[outputs, channels / groups, *kernel]` to `op`, of the gradient `gp` of the result and
    the images `xp`; none of the sizes is 0."""
    comptime width = simd_width_of[dtype]()
    var high = shape.high
    var wide = shape.wide
    var taps = shape.taps()
    var channels = shape.channels()
    var outputs = shape.per_group()
    # Each tap has a plane: then nothing lies between two rows of windows.
    var layout = Layout(wide, True)
    var plain = taps * high.stride * wide.stride == 1
    plain = plain and high.padding == 0 and wide.padding == 0 and wide.output == wide.input
    var lines = min(high.output, max(1, STRETCH // wide.output))
    var together = 1
    if lines == high.output:
        together = min(shape.batch, max(1, STRETCH // shape.pixels()))
    var size = (lines + high.step(high.kernel - 1)) * wide.output + width
    var image_space = high.stride * layout.planes() * size
    var channel_space = together * image_space
    var tasks = tasks_for(shape.outputs * channels, shape.cost())
    var block = max(1, PLANES // size_of[Scalar[dtype]]() // channel_space)
    # Some more units than tasks, so that all end at about the same time.
    var wanted = 4 * tasks if tasks > 1 else 1
    block = min(block, max(1, shape.groups * channels // wanted))
    block = min(block, channels)
    var blocks = ceildiv(channels, block)
    block = ceildiv(channels, blocks)
    var cuts = 1
    if shape.groups * blocks < tasks:
        cuts = min(ceildiv(outputs, DOWN), ceildiv(tasks, shape.groups * blocks))
    var slab = ceildiv(ceildiv(outputs, cuts), DOWN) * DOWN
    var begins = List[Int](capacity=block * taps)
    for channel in range(block):
        for tap_y in range(high.kernel):
            for tap_x in range(wide.kernel):
                if plain:
                    begins.append(channel * shape.plane())
                    continue
                var place = high.phase(tap_y) * layout.planes() + layout.plane(tap_x)
                place = place * size + high.step(tap_y) * wide.output
                begins.append(channel * channel_space + place)
    var begin = begins.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
    var space = 0 if plain else block * channel_space
    var units = shape.groups * blocks * cuts
    tasks = min(tasks, units)
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=max(1, tasks * space))
    var sp = scratch.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()

    def work(
        task: Int,
    ) {
        var op,
        var gp,
        var xp,
        var sp,
        var begin,
        var shape,
        var high,
        var wide,
        var layout,
        var taps,
        var channels,
        var outputs,
        var plain,
        var lines,
        var together,
        var size,
        var image_space,
        var channel_space,
        var block,
        var blocks,
        var cuts,
        var slab,
        var units,
        var tasks,
        var space,
    }:
        var planes = sp.unsafe_offset(task * space)
        for unit in range(task, units, tasks):
            var group = unit // (blocks * cuts)
            var first = unit // cuts % blocks * block
            var some = min(block, channels - first)
            var begun = unit % cuts * slab
            var count = min(slab, outputs - begun)
            if some <= 0 or count <= 0:
                continue
            var channel = group * channels + first
            var output = group * outputs + begun
            var to = op.unsafe_offset((output * channels + first) * taps)
            var added = False
            for image in range(0, shape.batch, together):
                var images = min(together, shape.batch - image)
                for top in range(0, high.output, lines):
                    var rows = min(lines, high.output - top)
                    var source = xp.unsafe_offset(
                        (image * shape.inputs + channel) * shape.plane()
                    )
                    var met = planes
                    var plane_image = image_space
                    if plain:
                        met = source.unsafe_offset(top * wide.input)
                        plane_image = shape.inputs * shape.plane()
                    else:
                        for i in range(some):
                            for k in range(images):
                                phase_planes(
                                    planes.unsafe_offset(i * channel_space + k * image_space),
                                    size,
                                    source.unsafe_offset(
                                        (k * shape.inputs + i) * shape.plane()
                                    ),
                                    high,
                                    layout,
                                    top,
                                    rows + high.step(high.kernel - 1),
                                )
                    var place = (image * shape.outputs + output) * shape.pixels()
                    var gradient = gp.unsafe_offset(place + top * wide.output)
                    _tiles(
                        gradient,
                        met,
                        begin,
                        plane_image,
                        shape,
                        images,
                        rows * wide.output,
                        count,
                        some * taps,
                        to,
                        added,
                    )
                    added = True

    sync_parallelize(work, tasks)
    _ = scratch^
    _ = begins^


@always_inline
def _tiles[
    dtype: DType, //
](
    gradient: Address[dtype],
    planes: Address[dtype],
    begins: Begins,
    plane_image: Int,
    shape: Shape,
    images: Int,
    pixels: Int,
    rows: Int,
    columns: Int,
    to: Address[dtype],
    added: Bool,
):
    """All tiles of some outputs and some taps, for a stretch of pixels."""
    var row = shape.pixels()
    var gradient_image = shape.outputs * row
    var to_row = shape.depth()
    var r = 0
    while r < rows:
        var tall = rows - r >= 2
        var count = min(DOWN, rows - r) if tall else 1
        var across = ACROSS if tall else ALONE
        var lines = gradient.unsafe_offset(r * row)
        for s in range(0, columns, across):
            var some = min(across, columns - s)
            var from_ = begins.unsafe_offset(s)
            var into = to.unsafe_offset(r * to_row + s)
            if tall:
                _dots[DOWN, ACROSS](
                    lines, row, gradient_image, planes, from_, plane_image, images, pixels,
                    count, some, into, to_row, added,
                )
            else:
                _dots[1, ALONE](
                    lines, row, gradient_image, planes, from_, plane_image, images, pixels,
                    count, some, into, to_row, added,
                )
        r += count


@register("tmb_convolution_weight_gradient")
struct ConvolutionWeightGradient:
    """`[outputs, channels / groups, height, width]` of the gradient `[batch, outputs, ...]` of a
    convolution's result and its input `[batch, channels, ...]`."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        gradient: InputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        stride_y: Int64,
        stride_x: Int64,
        padding_y: Int64,
        padding_x: Int64,
        dilation_y: Int64,
        dilation_x: Int64,
        groups: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "for GPUs it is a convolution"
        comptime assert dtype.is_floating_point(), "float only"
        var shape = Shape(
            gradient.dim_size[0](),
            x.dim_size[1](),
            output.dim_size[0](),
            Int(groups),
            Window(
                x.dim_size[2](),
                gradient.dim_size[2](),
                output.dim_size[2](),
                Int(stride_y),
                Int(padding_y),
                Int(dilation_y),
            ),
            Window(
                x.dim_size[3](),
                gradient.dim_size[3](),
                output.dim_size[3](),
                Int(stride_x),
                Int(padding_x),
                Int(dilation_x),
            ),
        )
        var op = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var count = shape.outputs * shape.depth()
        if count == 0:
            return
        if shape.batch * shape.pixels() * shape.plane() == 0:
            for i in range(count):
                op[unsafe_offset=i] = 0
            return
        convolution_weight_gradient(
            op,
            gradient.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](),
            x.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin](),
            shape,
        )
