"""Means of images `[batch, channels, height, width]` over the bins of boxes (RoIAlign, He et al., 2017):
what torchvision's `roi_align` computes. The weights of the pixels of a bin are products of weights
of rows and weights of columns, so rows are added up first."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceil
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, task_count

comptime GRAIN = 16384


@fieldwise_init
struct Axis[dtype: DType](TrivialRegisterPassable):
    """The samples of a box along one axis of the images."""

    var start: Scalar[Self.dtype]
    var bin: Scalar[Self.dtype]
    # Samples of a bin, bins, pixels of an image.
    var samples: Int
    var bins: Int
    var size: Int

    @staticmethod
    def of(
        begin: Scalar[Self.dtype],
        end: Scalar[Self.dtype],
        scale: Scalar[Self.dtype],
        samples: Int,
        bins: Int,
        size: Int,
        aligned: Bool,
    ) -> Self:
        """From the ends of a box. `samples` 0: as many as a bin has pixels."""
        var offset = Scalar[Self.dtype](0.5 if aligned else 0.0)
        var start = begin * scale - offset
        var length = end * scale - offset - start
        if not aligned:
            length = max(length, 1)
        var bin = length / Scalar[Self.dtype](bins)
        var count = samples
        if count <= 0:
            # No more than the image has twice over: NaN and infinity have no pixels.
            count = 0
            if bin > 0:
                count = Int(ceil(min(bin, Scalar[Self.dtype](2 * size + 2))))
        return Self(start, bin, count, bins, size)

    @always_inline
    def sample(self, bin: Int, i: Int) -> Tuple[Int, Scalar[Self.dtype], Scalar[Self.dtype]]:
        """The pixel before a sample, and the weights of it and the next; the second is 0 if there
        is none, both are outside the images."""
        comptime T = Scalar[Self.dtype]
        var part = (T(i) + T(0.5)) * self.bin / T(self.samples)
        var at = self.start + T(bin) * self.bin + part
        if not (at >= -1 and at <= T(self.size)):
            return (0, T(0), T(0))
        at = max(at, 0)
        var first = Int(at)
        if first >= self.size - 1:
            return (self.size - 1, T(1), T(0))
        return (first, T(1) - (at - T(first)), at - T(first))


def check_images[
    dtype: DType, //
](boxes: Address[dtype], count: Int, images: Int) raises where dtype.is_floating_point():
    """Raises unless each box is of one of the images."""
    for i in range(count):
        var image = boxes[unsafe_offset = 5 * i]
        if not (image >= 0 and image < Scalar[dtype](images)):
            raise Error("box ", i, " is of image ", image, "; there are ", images)


@always_inline
def axes[
    dtype: DType, //
](
    box: Address[dtype],
    scale: Scalar[dtype],
    samples: Int,
    aligned: Bool,
    down: Int,
    across: Int,
    height: Int,
    width: Int,
) -> Tuple[Axis[dtype], Axis[dtype]]:
    """The samples of a box down and across."""
    return (
        Axis[dtype].of(
            box[unsafe_offset=2], box[unsafe_offset=4], scale, samples, down, height, aligned
        ),
        Axis[dtype].of(
            box[unsafe_offset=1], box[unsafe_offset=3], scale, samples, across, width, aligned
        ),
    )


@always_inline
def reach[dtype: DType, //](wide: Axis[dtype]) -> Tuple[Int, Int]:
    """The first column that a box reaches, and the one behind the last."""
    var left = wide.size
    var right = 0
    for bin in range(wide.bins):
        for i in range(wide.samples):
            var s = wide.sample(bin, i)
            if s[1] != 0 or s[2] != 0:
                left = min(left, s[0])
                right = max(right, min(s[0] + 2, wide.size))
    return (left, right)


@register("tmb_roi_align")
struct RoiAlign:
    """`[boxes, channels, bins down, bins across]` of `boxes` `[boxes, 5]`: the image's number, then
    the ends of the box: x, y, x, y."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        boxes: InputTensor[dtype=dtype, rank=2, ...],
        samples: Int64,
        aligned: Int64,
        scale: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs leave it to torchvision"
        comptime assert dtype.is_floating_point(), "float only"
        var count = output.dim_size[0]()
        var channels = output.dim_size[1]()
        var down = output.dim_size[2]()
        var across = output.dim_size[3]()
        if count * channels * down * across == 0:
            return
        var images = x.dim_size[0]()
        var height = x.dim_size[2]()
        var width = x.dim_size[3]()
        var bp = untracked(boxes.unsafe_ptr())
        check_images(bp, count, images)
        var xp = untracked(x.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var wanted = Int(samples)
        var shifted = aligned != 0
        var factor = scale.cast[dtype]()
        var tasks = task_count(count, count * channels * down * (width + 2 * across), GRAIN)
        var sums = List[Scalar[dtype]](unsafe_uninit_length=tasks * width)
        var sp = untracked(sums.unsafe_ptr())

        def work(task: Int, lower: Int, upper: Int) {
            var xp, var op, var bp, var sp, var channels, var down, var across, var height,
            var width, var wanted, var shifted, var factor
        }:
            var row = sp.unsafe_offset(task * width)
            for i in range(lower, upper):
                var box = bp.unsafe_offset(5 * i)
                var both = axes(box, factor, wanted, shifted, down, across, height, width)
                var images = xp.unsafe_offset(Int(box[]) * channels * height * width)
                for channel in range(channels):
                    _means(
                        op.unsafe_offset((i * channels + channel) * down * across),
                        images.unsafe_offset(channel * height * width),
                        both[0],
                        both[1],
                        row,
                    )

        in_numbered_ranges(work, count, tasks)
        _ = sums^


def _means[
    dtype: DType, //
](
    to: Address[dtype],
    image: Address[dtype],
    high: Axis[dtype],
    wide: Axis[dtype],
    row: Address[dtype],
):
    """The means of the bins of a box in one channel."""
    comptime width = simd_width_of[dtype]()
    var factor = 1 / Scalar[dtype](max(1, high.samples * wide.samples))
    var left, right = reach(wide)
    for y in range(high.bins):
        for column in range(left, right):
            row[unsafe_offset=column] = 0
        for i in range(high.samples):
            var s = high.sample(y, i)
            if s[1] == 0 and s[2] == 0:
                continue
            var above = image.unsafe_offset(s[0] * wide.size)
            # Below the last row there is none.
            var below = above if s[2] == 0 else above.unsafe_offset(wide.size)
            var column = left
            while column + width <= right:
                var sum = row.unsafe_load[width=width](column)
                sum = above.unsafe_load[width=width](column).fma(s[1], sum)
                sum = below.unsafe_load[width=width](column).fma(s[2], sum)
                row.unsafe_store(column, sum)
                column += width
            while column < right:
                row[unsafe_offset=column] += (
                    above[unsafe_offset=column] * s[1] + below[unsafe_offset=column] * s[2]
                )
                column += 1
        for bin in range(wide.bins):
            var sum = Scalar[dtype](0)
            for i in range(wide.samples):
                var s = wide.sample(bin, i)
                if s[1] != 0 or s[2] != 0:
                    sum += row[unsafe_offset = s[0]] * s[1]
                    if s[2] != 0:
                        sum += row[unsafe_offset = s[0] + 1] * s[2]
            to[unsafe_offset = y * wide.bins + bin] = sum * factor
