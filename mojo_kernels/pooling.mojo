"""Pooling of channels-first planes `[batch, channels, depth, height, width]`.

One element of the output a step, so that one body serves CPU and GPU."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.utils.numerics import isnan, min_or_neg_inf

from .each import foreach
from .window import Axis


@register("tmb_max_pool")
struct MaxPool:
    """Maxima and their positions in the flattened plane; the first maximum
    wins, NaN wins over all."""

    @staticmethod
    def execute[
        dtype: DType, //, adaptive: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=5, ...],
        indices: OutputTensor[dtype=DType.int64, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        kernel_d: Int64,
        kernel_h: Int64,
        kernel_w: Int64,
        stride_d: Int64,
        stride_h: Int64,
        stride_w: Int64,
        padding_d: Int64,
        padding_h: Int64,
        padding_w: Int64,
        dilation_d: Int64,
        dilation_h: Int64,
        dilation_w: Int64,
        ctx: DeviceContext,
    ) raises:
        var deep = Axis(
            x.dim_size[2](),
            values.dim_size[2](),
            Int(kernel_d),
            Int(stride_d),
            Int(padding_d),
            Int(dilation_d),
        )
        var high = Axis(
            x.dim_size[3](),
            values.dim_size[3](),
            Int(kernel_h),
            Int(stride_h),
            Int(padding_h),
            Int(dilation_h),
        )
        var wide = Axis(
            x.dim_size[4](),
            values.dim_size[4](),
            Int(kernel_w),
            Int(stride_w),
            Int(padding_w),
            Int(dilation_w),
        )
        var channels = x.dim_size[1]()
        var source = x.unsafe_ptr()
        var positions = indices.unsafe_ptr()

        @always_inline
        def body[
            width: Int
        ](idx: Coord[...]) {
            var channels, var deep, var high, var wide, var source, var positions
        } -> SIMD[dtype, width]:
            var result = SIMD[dtype, width](0)
            var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
            var base = plane * deep.input * high.input * wide.input
            var od = Int(idx[2].value())
            var oh = Int(idx[3].value())
            var d = deep.window[adaptive](od)
            var h = high.window[adaptive](oh)
            for lane in range(width):
                var ow = Int(idx[4].value()) + lane
                var w = wide.window[adaptive](ow)
                var best = min_or_neg_inf[dtype]()
                var at = (d[0] * high.input + h[0]) * wide.input + w[0]
                for i in range(d[0], d[1], deep.dilation):
                    for j in range(h[0], h[1], high.dilation):
                        var row = (i * high.input + j) * wide.input
                        for k in range(w[0], w[1], wide.dilation):
                            var value = source[unsafe_offset=base + row + k]
                            var better = value > best
                            comptime if dtype.is_floating_point():
                                better = better or isnan(value)
                            if better:
                                best = value
                                at = row + k
                result[lane] = best
                var line = (plane * deep.output + od) * high.output + oh
                positions[unsafe_offset=line * wide.output + ow] = Int64(at)
            return result

        foreach[target=target](body, values, ctx)


@register("tmb_avg_pool")
struct AvgPool:
    """Means of windows. `divisor` replaces the element count unless it is 0."""

    @staticmethod
    def execute[
        dtype: DType, //, adaptive: Bool, count_padding: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
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
        var deep = Axis(
            x.dim_size[2](),
            output.dim_size[2](),
            Int(kernel_d),
            Int(stride_d),
            Int(padding_d),
            1,
        )
        var high = Axis(
            x.dim_size[3](),
            output.dim_size[3](),
            Int(kernel_h),
            Int(stride_h),
            Int(padding_h),
            1,
        )
        var wide = Axis(
            x.dim_size[4](),
            output.dim_size[4](),
            Int(kernel_w),
            Int(stride_w),
            Int(padding_w),
            1,
        )
        var channels = x.dim_size[1]()
        var source = x.unsafe_ptr()
        var fixed = Int(divisor)

        @always_inline
        def body[
            width: Int
        ](idx: Coord[...]) {
            var channels, var deep, var high, var wide, var source, var fixed
        } -> SIMD[dtype, width]:
            var result = SIMD[dtype, width](0)
            var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
            var base = plane * deep.input * high.input * wide.input
            var od = Int(idx[2].value())
            var oh = Int(idx[3].value())
            var d = deep.window[adaptive](od)
            var h = high.window[adaptive](oh)
            for lane in range(width):
                var ow = Int(idx[4].value()) + lane
                var w = wide.window[adaptive](ow)
                var sum = Scalar[dtype](0)
                for i in range(d[0], d[1]):
                    for j in range(h[0], h[1]):
                        var row = base + (i * high.input + j) * wide.input
                        for k in range(w[0], w[1]):
                            sum += source[unsafe_offset=row + k]
                var count = (d[1] - d[0]) * (h[1] - h[0]) * (w[1] - w[0])
                comptime if count_padding:
                    count = (
                        deep.padded_size(od)
                        * high.padded_size(oh)
                        * wide.padded_size(ow)
                    )
                if fixed != 0:
                    count = fixed
                comptime if dtype.is_floating_point():
                    result[lane] = sum / Scalar[dtype](count)
                else:
                    # Towards zero, as in C.
                    var size = Scalar[dtype](abs(count))
                    var mean = sum // size if sum >= 0 else -((-sum) // size)
                    result[lane] = mean if count > 0 else -mean
            return result

        foreach[target=target](body, output, ctx)
