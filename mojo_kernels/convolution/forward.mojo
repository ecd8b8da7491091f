"""Convolution of channels-first images. What follows a convolution in a network (a bias, a batch norm
of known statistics, a sum, an activation) is done to its sums while they are in the cache."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.memory import Address, untracked
from ..core.team import in_ranges, task_count
from ..gemm.bfloat16 import UNIT
from .finish import NONE, Finish, Norm
from .kinds import convolve
from .packed import Packed
from .planes import Shape, Window
from .products import convolve_by_products

comptime GRAIN = 32768


@always_inline
def _address[dtype: DType](tensor: InputTensor[dtype=dtype, rank=1, ...]) -> Int:
    """0 for a tensor without elements, which stands for none."""
    return Int(tensor.unsafe_ptr()) if tensor.dim_size[0]() != 0 else 0


def _widened[
    dtype: DType, sum_type: DType, //
](
    op: Address[dtype],
    xp: Address[dtype],
    wp: Address[dtype],
    shape: Shape,
    finish: Finish[sum_type, dtype],
):
    """A convolution of numbers that are widened before, and rounded after all: where nothing
    multiplies their pairs, as inside a MAX graph."""
    var inputs = shape.batch * shape.inputs * shape.plane()
    var weights = shape.outputs * shape.depth()
    var lines = shape.batch * shape.outputs
    var pixels = shape.pixels()
    var outputs = lines * pixels
    var space = List[Scalar[sum_type]](unsafe_uninit_length=inputs + weights + outputs)
    var image = untracked(space.unsafe_ptr())
    var weight = image.unsafe_offset(inputs)
    var sums = weight.unsafe_offset(weights)

    @always_inline
    def widen(to: Address[sum_type], source: Address[dtype], count: Int):
        def work(lower: Int, upper: Int) {var to, var source}:
            for i in range(lower, upper):
                to[unsafe_offset=i] = source[unsafe_offset=i].cast[sum_type]()

        in_ranges(work, count, task_count(count, count, GRAIN))

    widen(image, xp, inputs)
    widen(weight, wp, weights)
    convolve(sums, image, weight, shape, Finish[sum_type](0, 0, shape.outputs, False, NONE))

    def end(lower: Int, upper: Int) {var op, var sums, var shape, var finish, var pixels}:
        for line in range(lower, upper):
            var at = line * pixels
            finish.apply(
                op.unsafe_offset(at), sums.unsafe_offset(at), line % shape.outputs, at, pixels
            )

    in_ranges(end, lines, task_count(lines, outputs, GRAIN))
    _ = space^


@register("tmb_convolution")
struct Convolution:
    """`[batch, channels, height, width]` with weights
    `[outputs, channels / groups, height, width]`, and what follows; an empty
    tensor stands for one that is left out, and a number for an activation (`activation_name` of
    `gemm/activations.mojo`). `packed` are the weights as `tmb_pack_convolution` makes them. What is
    bfloat16 adds up in float32 and is rounded once."""

    @staticmethod
    def execute[
        dtype: DType, sum_type: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        weight: InputTensor[dtype=dtype, rank=4, ...],
        bias: InputTensor[dtype=sum_type, rank=1, ...],
        norm_weight: InputTensor[dtype=sum_type, rank=1, ...],
        norm_bias: InputTensor[dtype=sum_type, rank=1, ...],
        mean: InputTensor[dtype=sum_type, rank=1, ...],
        variance: InputTensor[dtype=sum_type, rank=1, ...],
        residual: InputTensor[dtype=dtype, rank=4, ...],
        packed: InputTensor[dtype=sum_type, rank=1, ...],
        routine: Int64,
        set_threads: Int64,
        stride_y: Int64,
        stride_x: Int64,
        padding_y: Int64,
        padding_x: Int64,
        dilation_y: Int64,
        dilation_x: Int64,
        groups: Int64,
        activation: Int64,
        epsilon: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own convolution"
        comptime assert sum_type.is_floating_point(), "float only"
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
        var norm = Norm[sum_type](
            _address(bias),
            _address(norm_weight),
            _address(norm_bias),
            _address(mean),
            _address(variance),
            epsilon.cast[sum_type](),
        )
        var factors = List[Scalar[sum_type]](unsafe_uninit_length=2 * shape.outputs)
        var fp = untracked(factors.unsafe_ptr())
        if not norm.idle():
            norm.factors(fp, shape.outputs)
        var finish = Finish[sum_type, dtype](
            0 if norm.idle() else Int(fp),
            Int(residual.unsafe_ptr()) if residual.dim_size[0]() != 0 else 0,
            shape.outputs,
            norm.variance != 0,
            Int(activation),
        )
        var xp = untracked(x.unsafe_ptr())
        var wp = untracked(weight.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        comptime if dtype == sum_type:
            convolve(
                op.unsafe_bitcast[Scalar[sum_type]](),
                xp.unsafe_bitcast[Scalar[sum_type]](),
                wp.unsafe_bitcast[Scalar[sum_type]](),
                shape,
                rebind[Finish[sum_type]](finish),
                Packed[sum_type](_address(packed)),
            )
        else:
            comptime paired = UNIT != "" and dtype == DType.bfloat16
            # A single channel has no pair.
            if paired and shape.channels() > 1:
                comptime if paired:
                    convolve_by_products(op, xp, wp, shape, finish)
            else:
                _widened(op, xp, wp, shape, finish)
        _ = factors^
