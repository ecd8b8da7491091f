"""Pooling of channels-first planes `[batch, channels, depth, height, width]`.

One element of the output a step on GPUs, a row of them on CPU."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext

from ..core.each import foreach
from ..core.lines import each_line
from ..core.memory import untracked
from .largest import largest_row
from .maxima import max_of_window, max_row
from .means import mean, mean_row, sum_of_window
from .window import Axis


@register("tmb_max_pool")
struct MaxPool:
    """Maxima and their positions in the flattened plane, unless `indices` has no place for them;
    the first maximum wins, NaN wins over all."""

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
        var source = untracked(x.unsafe_ptr())
        var positions = untracked(indices.unsafe_ptr())
        var size = deep.input * high.input * wide.input
        var placed = indices.dim_size[4]() != 0
        comptime if target == "cpu":
            var to = untracked(values.unsafe_ptr())
            var rows = values.dim_size[0]() * channels * deep.output * high.output
            var cost = wide.output * deep.kernel * high.kernel * wide.kernel
            comptime if adaptive:
                cost = size // max(1, deep.output * high.output)

            @always_inline
            def line(
                row: Int,
            ) {
                var to,
                var positions,
                var source,
                var size,
                var deep,
                var high,
                var wide,
                var placed,
            }:
                var plane = source.unsafe_offset(row // high.output // deep.output * size)
                var od = row // high.output % deep.output
                var oh = row % high.output
                var line = to.unsafe_offset(row * wide.output)
                if not placed:
                    largest_row[adaptive](line, plane, od, oh, deep, high, wide)
                    return
                var places = positions.unsafe_offset(row * wide.output)
                max_row[adaptive](line, places, plane, od, oh, deep, high, wide)

            if wide.output != 0:
                each_line[target=target](line, rows, cost // 8 + 1, ctx)
            return

        @always_inline
        def body[
            width: Int
        ](idx: Coord[...]) {
            var channels,
            var deep,
            var high,
            var wide,
            var source,
            var positions,
            var size,
            var placed,
        } -> SIMD[dtype, width]:
            var result = SIMD[dtype, width](0)
            var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
            var od = Int(idx[2].value())
            var oh = Int(idx[3].value())
            var d = deep.window[adaptive](od)
            var h = high.window[adaptive](oh)
            for lane in range(width):
                var ow = Int(idx[4].value()) + lane
                var w = wide.window[adaptive](ow)
                var image = source.unsafe_offset(plane * size)
                var found = max_of_window(image, d, h, w, deep, high, wide)
                result[lane] = found[0]
                var line = (plane * deep.output + od) * high.output + oh
                if placed:
                    positions[unsafe_offset = line * wide.output + ow] = Int64(found[1])
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
        var source = untracked(x.unsafe_ptr())
        var fixed = Int(divisor)
        var size = deep.input * high.input * wide.input
        comptime if target == "cpu":
            var to = untracked(output.unsafe_ptr())
            var rows = output.dim_size[0]() * channels * deep.output * high.output
            var cost = wide.output * deep.kernel * high.kernel * wide.kernel
            comptime if adaptive:
                cost = size // max(1, deep.output * high.output)

            @always_inline
            def line(
                row: Int,
            ) {
                var to,
                var source,
                var size,
                var deep,
                var high,
                var wide,
                var fixed,
            }:
                var plane = row // high.output // deep.output
                var od = row // high.output % deep.output
                var oh = row % high.output
                mean_row[adaptive, count_padding](
                    to.unsafe_offset(row * wide.output),
                    source.unsafe_offset(plane * size),
                    od,
                    oh,
                    deep,
                    high,
                    wide,
                    fixed,
                )

            if wide.output != 0:
                each_line[target=target](line, rows, cost // 4 + 1, ctx)
            return

        @always_inline
        def body[
            width: Int
        ](idx: Coord[...]) {
            var channels,
            var deep,
            var high,
            var wide,
            var source,
            var fixed,
            var size,
        } -> SIMD[dtype, width]:
            var result = SIMD[dtype, width](0)
            var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
            var od = Int(idx[2].value())
            var oh = Int(idx[3].value())
            var d = deep.window[adaptive](od)
            var h = high.window[adaptive](oh)
            for lane in range(width):
                var ow = Int(idx[4].value()) + lane
                var w = wide.window[adaptive](ow)
                var image = source.unsafe_offset(plane * size)
                result[lane] = mean[adaptive, count_padding](
                    sum_of_window(image, d, h, w, high, wide),
                    od,
                    oh,
                    ow,
                    deep,
                    high,
                    wide,
                    fixed,
                )
            return result

        foreach[target=target](body, output, ctx)
