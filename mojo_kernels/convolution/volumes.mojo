"""Convolution of channels-first volumes `[batch, channels, depth, height, width]`."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.memory import untracked
from .finish import NONE, Finish, Norm
from .planes import Shape, Window
from .products import convolve_by_products


@register("tmb_convolution_3d")
struct VolumeConvolution:
    """With weights `[outputs, channels / groups, depth, height, width]` and a bias, or an empty
    tensor for none. The sizes of the output say how far padding goes at the other end."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        weight: InputTensor[dtype=dtype, rank=5, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        stride_z: Int64,
        stride_y: Int64,
        stride_x: Int64,
        padding_z: Int64,
        padding_y: Int64,
        padding_x: Int64,
        dilation_z: Int64,
        dilation_y: Int64,
        dilation_x: Int64,
        groups: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own convolution"
        comptime assert dtype.is_floating_point(), "float only"

        @always_inline
        def window(i: Int, stride: Int64, padding: Int64, dilation: Int64) {imm} -> Window:
            return Window(
                x.dim_size(i),
                output.dim_size(i),
                weight.dim_size(i),
                Int(stride),
                Int(padding),
                Int(dilation),
            )

        var shape = Shape(
            output.dim_size[0](),
            x.dim_size[1](),
            output.dim_size[1](),
            Int(groups),
            window(3, stride_y, padding_y, dilation_y),
            window(4, stride_x, padding_x, dilation_x),
            window(2, stride_z, padding_z, dilation_z),
        )
        if shape.batch * shape.outputs * shape.pixels() == 0:
            return
        var added = Int(bias.unsafe_ptr()) if bias.dim_size[0]() != 0 else 0
        var norm = Norm[dtype](added, 0, 0, 0, 0, Scalar[dtype](0))
        var factors = List[Scalar[dtype]](unsafe_uninit_length=2 * shape.outputs)
        var fp = untracked(factors.unsafe_ptr())
        if not norm.idle():
            norm.factors(fp, shape.outputs)
        var finish = Finish[dtype](0 if norm.idle() else Int(fp), 0, shape.outputs, False, NONE)
        convolve_by_products[volumes=True](
            untracked(output.unsafe_ptr()),
            untracked(x.unsafe_ptr()),
            untracked(weight.unsafe_ptr()),
            shape,
            finish,
        )
        _ = factors^
