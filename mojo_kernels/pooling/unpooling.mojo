"""Gradients of pooling, maxima put back where they were, and pooling by windows
that random numbers place. Planes are channels first."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.memory import unsafe_memset_zero
from std.utils.numerics import isnan, min_or_neg_inf

from ..core.each import foreach
from ..core.lines import each_line
from ..core.memory import untracked
from .means import mean, spread_plane
from .window import Axis


@register("tmb_plane_scatter")
struct PlaneScatter:
    """Values `[planes, n]` at positions of planes `[planes, size]`, added up
    (`add`; position -1 is nowhere) or written, the last one last; 0 elsewhere."""

    @staticmethod
    def execute[
        dtype: DType, //, add: Bool, target: StaticString
    ](
        result: OutputTensor[dtype=dtype, rank=2, ...],
        values: InputTensor[dtype=dtype, rank=2, ...],
        indices: InputTensor[dtype=DType.int64, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        if result.size() == 0:
            return
        var n = values.dim_size[1]()
        var size = result.dim_size[1]()
        var source = values.unsafe_ptr()
        var places = indices.unsafe_ptr()
        var to = result.unsafe_ptr()
        comptime least = -1 if add else 0
        comptime if target == "cpu":
            # Before threads start, because an error in one ends the process.
            for i in range(values.size()):
                var place = Int(places[unsafe_offset=i])
                if place < least or place >= size:
                    raise Error(
                        "found an invalid max index ",
                        place,
                        " for a plane of ",
                        size,
                        " pixels",
                    )

        @always_inline
        def work(
            line: Int,
        ) {var source, var places, var to, var n, var size}:
            var plane = to.unsafe_offset(line * size)
            for i in range(size):
                plane[unsafe_offset=i] = 0
            for i in range(line * n, line * n + n):
                var place = Int(places[unsafe_offset=i])
                if place < 0 or place >= size:
                    continue
                comptime if add:
                    plane[unsafe_offset=place] += source[unsafe_offset=i]
                else:
                    plane[unsafe_offset=place] = source[unsafe_offset=i]

        each_line[target=target](work, result.dim_size[0](), n + size, ctx)


@register("tmb_avg_pool_backward")
struct AvgPoolBackward:
    """The gradient of means of windows, a plane at a time. `divisor` replaces
    the element count unless it is 0."""

    @staticmethod
    def execute[
        dtype: DType, //, adaptive: Bool, count_padding: Bool, target: StaticString
    ](
        result: OutputTensor[dtype=dtype, rank=5, ...],
        gradient: InputTensor[dtype=dtype, rank=5, ...],
        kernel_d: Int64,
        kernel_h: Int64,
        kernel_w: Int64,
        stride_d: Int64,
        stride_h: Int64,
        stride_w: Int64,
        padding_d: Int64,
        padding_h: Int64,
        padding_w: Int64,
        divisor: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        if result.size() == 0:
            return
        var deep = Axis(
            result.dim_size[2](),
            gradient.dim_size[2](),
            Int(kernel_d),
            Int(stride_d),
            Int(padding_d),
            1,
        )
        var high = Axis(
            result.dim_size[3](),
            gradient.dim_size[3](),
            Int(kernel_h),
            Int(stride_h),
            Int(padding_h),
            1,
        )
        var wide = Axis(
            result.dim_size[4](),
            gradient.dim_size[4](),
            Int(kernel_w),
            Int(stride_w),
            Int(padding_w),
            1,
        )
        var source = untracked(gradient.unsafe_ptr())
        var to = untracked(result.unsafe_ptr())
        var fixed = Int(divisor)
        var planes = result.dim_size[0]() * result.dim_size[1]()
        var size = deep.input * high.input * wide.input
        var outputs = deep.output * high.output * wide.output

        @always_inline
        def work(
            line: Int,
        ) {
            var source,
            var to,
            var deep,
            var high,
            var wide,
            var fixed,
            var size,
            var outputs,
        }:
            var plane = to.unsafe_offset(line * size)
            comptime if target == "cpu":
                spread_plane[adaptive, count_padding](
                    plane, source.unsafe_offset(line * outputs), deep, high, wide, fixed
                )
                return
            for i in range(size):
                plane[unsafe_offset=i] = 0
            var at = line * outputs
            for od in range(deep.output):
                var d = deep.window[adaptive](od)
                for oh in range(high.output):
                    var h = high.window[adaptive](oh)
                    for ow in range(wide.output):
                        var w = wide.window[adaptive](ow)
                        var share = mean[adaptive, count_padding](
                            source[unsafe_offset=at], od, oh, ow, deep, high, wide, fixed
                        )
                        at += 1
                        for i in range(d[0], d[1]):
                            for j in range(h[0], h[1]):
                                var row = (i * high.input + j) * wide.input
                                for k in range(row + w[0], row + w[1]):
                                    plane[unsafe_offset=k] += share

        var window = Int(kernel_d * kernel_h * kernel_w)
        each_line[target=target](work, planes, size + outputs * window, ctx)


@always_inline
def _begin[
    dtype: DType
](sample: Scalar[dtype], input: Int, output: Int, kernel: Int, at: Int) -> Int:
    """Where window `at` of an axis begins (Graham, "Fractional max-pooling")."""
    comptime assert dtype.is_floating_point(), "float only"
    if at == output - 1:
        return input - kernel
    var alpha = Scalar[dtype](input - kernel) / Scalar[dtype](output - 1)
    var begin = Int((Scalar[dtype](at) + sample) * alpha) - Int(sample * alpha)
    return max(0, min(begin, input - kernel))


@register("tmb_fractional_max_pool")
struct FractionalMaxPool:
    """Maxima of windows and their positions in the plane. Samples are
    `[batch, channels, 3]`, of depth, height and width, from 0 to 1."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=5, ...],
        indices: OutputTensor[dtype=DType.int64, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        samples: InputTensor[dtype=dtype, rank=3, ...],
        kernel_d: Int64,
        kernel_h: Int64,
        kernel_w: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var channels = x.dim_size[1]()
        var source = x.unsafe_ptr()
        var random = samples.unsafe_ptr()
        var positions = indices.unsafe_ptr()
        var depth = x.dim_size[2]()
        var height = x.dim_size[3]()
        var breadth = x.dim_size[4]()
        var slices = values.dim_size[2]()
        var rows = values.dim_size[3]()
        var columns = values.dim_size[4]()
        var kd = Int(kernel_d)
        var kh = Int(kernel_h)
        var kw = Int(kernel_w)
        if kd > depth or kh > height or kw > breadth:
            raise Error("a window of pooling is larger than the image")

        @always_inline
        def body[
            width: Int
        ](idx: Coord[...]) {
            var channels,
            var source,
            var random,
            var positions,
            var depth,
            var height,
            var breadth,
            var slices,
            var rows,
            var columns,
            var kd,
            var kh,
            var kw,
        } -> SIMD[dtype, width]:
            var result = SIMD[dtype, width](0)
            var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
            var sample = random.unsafe_offset(plane * 3)
            var base = plane * depth * height * breadth
            var od = Int(idx[2].value())
            var oh = Int(idx[3].value())
            var d = _begin(sample[unsafe_offset=0], depth, slices, kd, od)
            var h = _begin(sample[unsafe_offset=1], height, rows, kh, oh)
            for lane in range(width):
                var ow = Int(idx[4].value()) + lane
                var w = _begin(sample[unsafe_offset=2], breadth, columns, kw, ow)
                var best = min_or_neg_inf[dtype]()
                var at = (d * height + h) * breadth + w
                for i in range(d, d + kd):
                    for j in range(h, h + kh):
                        var row = (i * height + j) * breadth
                        for k in range(w, w + kw):
                            var value = source[unsafe_offset=base + row + k]
                            if value > best or isnan(value):
                                best = value
                                at = row + k
                result[lane] = best
                var line = (plane * slices + od) * rows + oh
                positions[unsafe_offset=line * columns + ow] = Int64(at)
            return result

        foreach[target=target](body, values, ctx)
