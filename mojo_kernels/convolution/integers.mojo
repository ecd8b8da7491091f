"""Convolutions of integers `[batch, channels, depth, height, width]`; sums wrap around.

One element of the output a step, so that one body serves CPU and GPU."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext

from ..core.each import foreach
from ..pooling.window import Axis


@register("tmb_integer_convolution")
struct IntegerConvolution:
    """The sizes of the output say how far padding goes at the other end."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        weight: InputTensor[dtype=dtype, rank=5, ...],
        stride_d: Int64,
        stride_h: Int64,
        stride_w: Int64,
        padding_d: Int64,
        padding_h: Int64,
        padding_w: Int64,
        dilation_d: Int64,
        dilation_h: Int64,
        dilation_w: Int64,
        groups: Int64,
        ctx: DeviceContext,
    ) raises:
        var deep = Axis(
            x.dim_size[2](),
            output.dim_size[2](),
            weight.dim_size[2](),
            Int(stride_d),
            Int(padding_d),
            Int(dilation_d),
        )
        var high = Axis(
            x.dim_size[3](),
            output.dim_size[3](),
            weight.dim_size[3](),
            Int(stride_h),
            Int(padding_h),
            Int(dilation_h),
        )
        var wide = Axis(
            x.dim_size[4](),
            output.dim_size[4](),
            weight.dim_size[4](),
            Int(stride_w),
            Int(padding_w),
            Int(dilation_w),
        )
        var channels = x.dim_size[1]()
        var share = weight.dim_size[1]()
        var outputs = output.dim_size[1]() // Int(groups)
        if share * Int(groups) != channels:
            raise Error("the weight's channels and groups are not the input's")
        var source = x.unsafe_ptr()
        var factors = weight.unsafe_ptr()

        @always_inline
        def body[
            width: Int
        ](idx: Coord[...]) {
            var channels,
            var share,
            var outputs,
            var deep,
            var high,
            var wide,
            var source,
            var factors,
        } -> SIMD[dtype, width]:
            var result = SIMD[dtype, width](0)
            var o = Int(idx[1].value())
            var first = Int(idx[0].value()) * channels + o // outputs * share
            var fd = Int(idx[2].value()) * deep.stride - deep.padding
            var fh = Int(idx[3].value()) * high.stride - high.padding
            var d = deep.strided(Int(idx[2].value()))
            var h = high.strided(Int(idx[3].value()))
            for lane in range(width):
                var at = Int(idx[4].value()) + lane
                var fw = at * wide.stride - wide.padding
                var w = wide.strided(at)
                var sum = Scalar[dtype](0)
                for channel in range(share):
                    var plane = (first + channel) * deep.input
                    var taps = (o * share + channel) * deep.kernel
                    for i in range(d[0], d[1], deep.dilation):
                        var tap_d = (taps + (i - fd) // deep.dilation) * high.kernel
                        for j in range(h[0], h[1], high.dilation):
                            var row = ((plane + i) * high.input + j) * wide.input
                            var tap = (tap_d + (j - fh) // high.dilation) * wide.kernel
                            for k in range(w[0], w[1], wide.dilation):
                                sum += (
                                    source[unsafe_offset=row + k]
                                    * factors[
                                        unsafe_offset=tap + (k - fw) // wide.dilation
                                    ]
                                )
                result[lane] = sum
            return result

        foreach[target=target](body, output, ctx)
