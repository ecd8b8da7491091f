"""Convolution of channels-first images. What follows a convolution in a network (a bias, a batch norm
of known statistics, a sum, an activation) is done to its sums while they are in the cache."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.memory import untracked
from .finish import Finish, Norm
from .kinds import convolve
from .planes import Shape, Window


@always_inline
def _address[dtype: DType](tensor: InputTensor[dtype=dtype, rank=1, ...]) -> Int:
    """0 for a tensor without elements, which stands for none."""
    return Int(tensor.unsafe_ptr()) if tensor.dim_size[0]() != 0 else 0


@register("tmb_convolution")
struct Convolution:
    """`[batch, channels, height, width]` with weights
    `[outputs, channels / groups, height, width]`, and what follows; an empty
    tensor stands for one that is left out."""

    @staticmethod
    def execute[
        dtype: DType, //, activation: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        weight: InputTensor[dtype=dtype, rank=4, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        norm_weight: InputTensor[dtype=dtype, rank=1, ...],
        norm_bias: InputTensor[dtype=dtype, rank=1, ...],
        mean: InputTensor[dtype=dtype, rank=1, ...],
        variance: InputTensor[dtype=dtype, rank=1, ...],
        residual: InputTensor[dtype=dtype, rank=4, ...],
        routine: Int64,
        set_threads: Int64,
        stride_y: Int64,
        stride_x: Int64,
        padding_y: Int64,
        padding_x: Int64,
        dilation_y: Int64,
        dilation_x: Int64,
        groups: Int64,
        epsilon: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own convolution"
        comptime assert dtype.is_floating_point(), "float only"
        var shape = Shape(
            output.dim_size[0](),
            x.dim_size[1](),
            output.dim_size[1](),
            Int(groups),
            Window(
                x.dim_size[2](),
                output.dim_size[2](),
                weight.dim_size[2](),
                Int(stride_y),
                Int(padding_y),
                Int(dilation_y),
            ),
            Window(
                x.dim_size[3](),
                output.dim_size[3](),
                weight.dim_size[3](),
                Int(stride_x),
                Int(padding_x),
                Int(dilation_x),
            ),
        )
        if shape.batch * shape.outputs * shape.pixels() == 0:
            return
        var norm = Norm[dtype](
            _address(bias),
            _address(norm_weight),
            _address(norm_bias),
            _address(mean),
            _address(variance),
            epsilon.cast[dtype](),
        )
        var factors = List[Scalar[dtype]](unsafe_uninit_length=2 * shape.outputs)
        var fp = untracked(factors.unsafe_ptr())
        if not norm.idle():
            norm.factors(fp, shape.outputs)
        var finish = Finish[dtype, activation](
            0 if norm.idle() else Int(fp),
            Int(residual.unsafe_ptr()) if residual.dim_size[0]() != 0 else 0,
            shape.outputs,
        )
        var xp = untracked(x.unsafe_ptr())
        var wp = untracked(weight.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        convolve(op, xp, wp, shape, finish)
        _ = factors^
