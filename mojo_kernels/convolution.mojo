"""Convolution of channels-first images, its products by the routine of
`gemm.mojo`: windows become the columns of a matrix, a tile of pixels at a time.
"""

from extensibility import InputTensor, OutputTensor, register
from max.algorithm import sync_parallelize
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of

from .gemm import Gemm, tasks_for
from .panels import Address

# Elements of a tile of columns: half of a second-level cache.
comptime TILE = 131072


@fieldwise_init
struct Window(TrivialRegisterPassable):
    """How windows lie along one axis."""

    var input: Int
    var output: Int
    var kernel: Int
    var stride: Int
    var padding: Int
    var dilation: Int

    @always_inline
    def first(self, tap: Int) -> Int:
        """Input position of a tap of the first window, maybe outside."""
        return tap * self.dilation - self.padding

    @always_inline
    def span(self, tap: Int) -> Tuple[Int, Int]:
        """The outputs for which a tap lies inside the input."""
        var at = self.first(tap)
        var start = 0 if at >= 0 else ceildiv(-at, self.stride)
        var end = 0 if at >= self.input else (self.input - 1 - at) // self.stride + 1
        start = min(start, self.output)
        return (start, max(start, min(end, self.output)))


@always_inline
def _gather_row[
    dtype: DType
](
    to: Address[dtype],
    image: Address[dtype],
    high: Window,
    wide: Window,
    tap_y: Int,
    tap_x: Int,
    start: Int,
    end: Int,
):
    """One tap of output pixels `start` to `end`, zero outside the image."""
    comptime width = simd_width_of[dtype]()
    var left, right = wide.span(tap_x)
    var at = start
    while at < end:
        var y = at // wide.output
        var x = at - y * wide.output
        var stop = min(end - at, wide.output - x) + x
        var source_y = y * high.stride + high.first(tap_y)
        var line = to.unsafe_offset(at - start - x)
        if source_y < 0 or source_y >= high.input:
            for i in range(x, stop):
                line[unsafe_offset=i] = 0
        else:
            var low = max(x, min(left, stop))
            var top = max(low, min(right, stop))
            for i in range(x, low):
                line[unsafe_offset=i] = 0
            var source = source_y * wide.input + wide.first(tap_x)
            var i = low
            if wide.stride == 1:
                while i + width <= top:
                    line.unsafe_store[width=width](
                        i, image.unsafe_load[width=width](source + i)
                    )
                    i += width
            while i < top:
                line[unsafe_offset=i] = image[
                    unsafe_offset = source + i * wide.stride
                ]
                i += 1
            for j in range(top, stop):
                line[unsafe_offset=j] = 0
        at += stop - x


@always_inline
def _single_channel[
    dtype: DType
](
    to: Address[dtype],
    image: Address[dtype],
    weight: Address[dtype],
    addend: Scalar[dtype],
    high: Window,
    wide: Window,
):
    """One plane of a convolution whose groups have one input channel."""
    comptime width = simd_width_of[dtype]()
    for y in range(high.output):
        var line = to.unsafe_offset(y * wide.output)
        for x in range(wide.output):
            line[unsafe_offset=x] = addend
        for tap_y in range(high.kernel):
            var source_y = y * high.stride + high.first(tap_y)
            if source_y < 0 or source_y >= high.input:
                continue
            for tap_x in range(wide.kernel):
                var left, right = wide.span(tap_x)
                var factor = weight[unsafe_offset = tap_y * wide.kernel + tap_x]
                var source = source_y * wide.input + wide.first(tap_x)
                var x = left
                if wide.stride == 1:
                    while x + width <= right:
                        line.unsafe_store[width=width](
                            x,
                            image.unsafe_load[width=width](source + x).fma(
                                SIMD[dtype, width](factor),
                                line.unsafe_load[width=width](x),
                            ),
                        )
                        x += width
                while x < right:
                    line[unsafe_offset=x] += (
                        image[unsafe_offset = source + x * wide.stride] * factor
                    )
                    x += 1


@register("tmb_convolution")
struct Convolution:
    """`[batch, channels, height, width]` with weights
    `[outputs, channels / groups, height, width]`; an empty bias is none."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        weight: InputTensor[dtype=dtype, rank=4, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        routine: Int64,
        set_threads: Int64,
        stride_y: Int64,
        stride_x: Int64,
        padding_y: Int64,
        padding_x: Int64,
        dilation_y: Int64,
        dilation_x: Int64,
        groups: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own convolution"
        var gemm = Gemm(Int(routine), Int(set_threads))
        var high = Window(
            x.dim_size[2](),
            output.dim_size[2](),
            weight.dim_size[2](),
            Int(stride_y),
            Int(padding_y),
            Int(dilation_y),
        )
        var wide = Window(
            x.dim_size[3](),
            output.dim_size[3](),
            weight.dim_size[3](),
            Int(stride_x),
            Int(padding_x),
            Int(dilation_x),
        )
        var batch = output.dim_size[0]()
        var outputs = output.dim_size[1]()
        var inputs = x.dim_size[1]()
        var parts = Int(groups)
        var channels = weight.dim_size[1]()
        var per_group = outputs // parts
        var pixels = high.output * wide.output
        var plane = high.input * wide.input
        var taps = high.kernel * wide.kernel
        var depth = channels * taps
        if batch * outputs * pixels == 0:
            return
        var xp = x.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var wp = weight.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var bp = bias.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var op = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var biased = bias.dim_size[0]() != 0
        var cost = batch * outputs * pixels * depth

        if channels == 1:
            var planes = batch * outputs
            var tasks = tasks_for(planes, cost * 4)
            var chunk = ceildiv(planes, tasks)

            def single(
                task: Int,
            ) {
                var xp,
                var wp,
                var bp,
                var op,
                var biased,
                var planes,
                var chunk,
                var outputs,
                var inputs,
                var per_group,
                var high,
                var wide,
                var pixels,
                var plane,
                var taps,
            }:
                for at in range(task * chunk, min(planes, (task + 1) * chunk)):
                    var item = at // outputs
                    var channel = at % outputs
                    var addend = Scalar[dtype](0)
                    if biased:
                        addend = bp[unsafe_offset=channel]
                    _single_channel(
                        op.unsafe_offset(at * pixels),
                        xp.unsafe_offset((item * inputs + channel // per_group) * plane),
                        wp.unsafe_offset(channel * taps),
                        addend,
                        high,
                        wide,
                    )

            sync_parallelize(single, tasks)
            return

        # The image itself is the matrix of columns of a 1x1 convolution.
        var direct = (
            taps == 1
            and high.stride * wide.stride == 1
            and high.padding + wide.padding == 0
        )
        var tasks = tasks_for(batch * outputs * pixels, cost)
        var tile = max(64, TILE // max(depth, 1) // 16 * 16)
        # Enough tiles for all tasks, but none that starves the product.
        tile = min(tile, max(64, ceildiv(ceildiv(batch * parts * pixels, tasks), 16) * 16))
        tile = min(tile, pixels)
        var tiles = ceildiv(pixels, tile)
        var cuts = max(1, min(tasks // (batch * parts * tiles), per_group // 16))
        var slab = ceildiv(per_group, cuts)
        var units = batch * parts * cuts * tiles
        tasks = min(tasks, units)
        var chunk = ceildiv(units, tasks)
        var scratch = List[Scalar[dtype]](
            unsafe_uninit_length=1 if direct else tasks * tile * depth
        )
        var sp = scratch.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()

        def work(
            task: Int,
        ) {
            var gemm,
            var xp,
            var wp,
            var bp,
            var op,
            var sp,
            var biased,
            var units,
            var chunk,
            var tile,
            var tiles,
            var cuts,
            var slab,
            var parts,
            var outputs,
            var inputs,
            var channels,
            var per_group,
            var high,
            var wide,
            var pixels,
            var plane,
            var taps,
            var depth,
            var direct,
        }:
            comptime width = simd_width_of[dtype]()
            var previous = gemm.begin()
            var columns = sp.unsafe_offset(0 if direct else task * tile * depth)
            for unit in range(task * chunk, min(units, (task + 1) * chunk)):
                var item = unit // (parts * cuts * tiles)
                var group = unit // (cuts * tiles) % parts
                var cut = unit // tiles % cuts
                var start = unit % tiles * tile
                var end = min(pixels, start + tile)
                var first = group * per_group + cut * slab
                var rows = min(slab, per_group - cut * slab)
                if rows <= 0:
                    continue
                var images = xp.unsafe_offset((item * inputs + group * channels) * plane)
                var matrix = images.unsafe_offset(start)
                var row = plane
                if not direct:
                    matrix = columns
                    row = end - start
                    for channel in range(channels):
                        for tap in range(taps):
                            _gather_row(
                                columns.unsafe_offset((channel * taps + tap) * row),
                                images.unsafe_offset(channel * plane),
                                high,
                                wide,
                                tap // wide.kernel,
                                tap % wide.kernel,
                                start,
                                end,
                            )
                var to = op.unsafe_offset((item * outputs + first) * pixels + start)
                gemm.multiply(
                    rows,
                    end - start,
                    depth,
                    wp.unsafe_offset(first * depth),
                    depth,
                    False,
                    matrix,
                    row,
                    False,
                    to,
                    pixels,
                )
                if not biased:
                    continue
                for i in range(rows):
                    var line = to.unsafe_offset(i * pixels)
                    var addend = bp[unsafe_offset = first + i]
                    var j = 0
                    while j + width <= end - start:
                        line.unsafe_store[width=width](
                            j, line.unsafe_load[width=width](j) + addend
                        )
                        j += width
                    while j < end - start:
                        line[unsafe_offset=j] += addend
                        j += 1
            gemm.end(previous)

        sync_parallelize(work, tasks)
        _ = scratch^
