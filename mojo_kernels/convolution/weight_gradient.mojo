"""The gradient of a convolution's weights: each is the dot product of an output channel's gradient
and what its tap meets, over the pixels of all images. The numbers that a tap meets lie side by side in
planes, as for the convolution itself; a stretch of pixels is done at a time that the caches hold."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of, size_of

from ..core.memory import Address, untracked
from ..core.team import sync_parallelize
from ..gemm.blas import tasks_for
from ..gemm.panels import DEPTH
from .planes import Layout, Shape, Window, phase_planes
from .weight_tiles import Stretch, panels_size, tiles_by_dots, tiles_by_panels

# Pixels of an output channel's gradient at a time: those of a tile stay in the first-level cache.
comptime STRETCH = 1536
# Bytes of the planes that all tiles of outputs are multiplied with in turn: in the second one.
comptime PLANES = 393216
# Outputs, and taps, from which panels are worth what copying costs.
comptime MANY = 48


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
    var many = min(outputs, channels * taps) >= MANY
    var most = DEPTH if many else STRETCH
    var lines = min(high.output, max(1, most // wide.output))
    var together = 1
    if lines == high.output:
        together = min(shape.batch, max(1, most // shape.pixels()))
    var size = (lines + high.step(high.kernel - 1)) * wide.output + width
    var image_space = high.stride * layout.planes() * size
    var channel_space = together * image_space
    var tasks = tasks_for(shape.outputs * channels, shape.cost())
    var block = max(1, PLANES // size_of[Scalar[dtype]]() // channel_space)
    # Some more units than tasks, so that all end at about the same time; but each copies the
    # gradients into panels.
    var wanted = tasks if many or tasks == 1 else 4 * tasks
    block = min(block, max(1, shape.groups * channels // wanted))
    block = min(block, channels)
    var blocks = ceildiv(channels, block)
    block = ceildiv(channels, blocks)
    var depth = together * lines * wide.output
    var panels = panels_size[dtype](block * taps, depth) if many else 0
    var cuts = 1
    if shape.groups * blocks < tasks:
        cuts = min(ceildiv(outputs, 4), ceildiv(tasks, shape.groups * blocks))
    var slab = ceildiv(outputs, cuts)
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
    var begin = untracked(begins.unsafe_ptr())
    var planes_space = 0 if plain else block * channel_space
    var space = planes_space + panels
    var units = shape.groups * blocks * cuts
    tasks = min(tasks, units)
    var scratch = List[Scalar[dtype]](unsafe_uninit_length=max(1, tasks * space))
    var sp = untracked(scratch.unsafe_ptr())

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
        var planes_space,
        var space,
        var many,
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
                    var of = Stretch[dtype](
                        untracked(gradient),
                        untracked(met),
                        untracked(begin),
                        images,
                        rows * wide.output,
                        shape.pixels(),
                        shape.outputs * shape.pixels(),
                        plane_image,
                    )
                    if many:
                        var panels = planes.unsafe_offset(planes_space)
                        tiles_by_panels(of, count, some * taps, to, shape.depth(), added, panels)
                    else:
                        tiles_by_dots(of, count, some * taps, to, shape.depth(), added)
                    added = True

    sync_parallelize(work, tasks)
    _ = scratch^
    _ = begins^


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
        var op = untracked(output.unsafe_ptr())
        var count = shape.outputs * shape.depth()
        if count == 0:
            return
        if shape.batch * shape.pixels() * shape.plane() == 0:
            for i in range(count):
                op[unsafe_offset=i] = 0
            return
        convolution_weight_gradient(
            op,
            untracked(gradient.unsafe_ptr()),
            untracked(x.unsafe_ptr()),
            shape,
        )
