"""The gradient of images whose means over boxes were taken (`roi_align`)."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, task_count
from .roi_align import Axis, axes, check_images, reach

comptime GRAIN = 16384


@register("tmb_roi_align_backward")
struct RoiAlignBackward:
    """`[images, channels, height, width]` of the gradient `[boxes, channels, bins down, bins across]`.

    A task has channels of its own and goes through all boxes: the order of the sums does not depend
    on the number of threads."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        grad: InputTensor[dtype=dtype, rank=4, ...],
        boxes: InputTensor[dtype=dtype, rank=2, ...],
        samples: Int64,
        aligned: Int64,
        scale: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs leave it to torchvision"
        comptime assert dtype.is_floating_point(), "float only"
        var images = output.dim_size[0]()
        var channels = output.dim_size[1]()
        var height = output.dim_size[2]()
        var width = output.dim_size[3]()
        if images * channels * height * width == 0:
            return
        var count = grad.dim_size[0]()
        var down = grad.dim_size[2]()
        var across = grad.dim_size[3]()
        var bp = untracked(boxes.unsafe_ptr())
        check_images(bp, count, images)
        var gp = untracked(grad.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var wanted = Int(samples)
        var shifted = aligned != 0
        var factor = scale.cast[dtype]()
        var steps = channels * (images * height * width + count * down * (width + 2 * across))
        var tasks = task_count(channels, steps, GRAIN)
        var sums = List[Scalar[dtype]](unsafe_uninit_length=tasks * width)
        var sp = untracked(sums.unsafe_ptr())

        def work(task: Int, lower: Int, upper: Int) {
            var gp, var op, var bp, var sp, var images, var channels, var count, var down,
            var across, var height, var width, var wanted, var shifted, var factor
        }:
            var row = sp.unsafe_offset(task * width)
            var plane = height * width
            for image in range(images):
                var first = op.unsafe_offset((image * channels + lower) * plane)
                for at in range((upper - lower) * plane):
                    first[unsafe_offset=at] = 0
            for i in range(count):
                var box = bp.unsafe_offset(5 * i)
                var both = axes(box, factor, wanted, shifted, down, across, height, width)
                var first = op.unsafe_offset(Int(box[]) * channels * plane)
                for channel in range(lower, upper):
                    _spread(
                        first.unsafe_offset(channel * plane),
                        gp.unsafe_offset((i * channels + channel) * down * across),
                        both[0],
                        both[1],
                        row,
                    )

        in_numbered_ranges(work, channels, tasks)
        _ = sums^


def _spread[
    dtype: DType, //
](
    image: Address[dtype],
    grad: Address[dtype],
    high: Axis[dtype],
    wide: Axis[dtype],
    row: Address[dtype],
):
    """Adds the gradients of the bins of a box to the pixels that they are means of."""
    comptime width = simd_width_of[dtype]()
    var factor = 1 / Scalar[dtype](max(1, high.samples * wide.samples))
    var left, right = reach(wide)
    for y in range(high.bins):
        for column in range(left, right):
            row[unsafe_offset=column] = 0
        for bin in range(wide.bins):
            var g = grad[unsafe_offset = y * wide.bins + bin] * factor
            for i in range(wide.samples):
                var s = wide.sample(bin, i)
                if s[1] != 0 or s[2] != 0:
                    row[unsafe_offset = s[0]] += g * s[1]
                    if s[2] != 0:
                        row[unsafe_offset = s[0] + 1] += g * s[2]
        for i in range(high.samples):
            var s = high.sample(y, i)
            for next in range(2):
                var weight = s[1] if next == 0 else s[2]
                if weight == 0:
                    continue
                var line = image.unsafe_offset((s[0] + next) * wide.size)
                var column = left
                while column + width <= right:
                    var sum = line.unsafe_load[width=width](column)
                    sum = row.unsafe_load[width=width](column).fma(weight, sum)
                    line.unsafe_store(column, sum)
                    column += width
                while column < right:
                    line[unsafe_offset=column] += row[unsafe_offset=column] * weight
                    column += 1
