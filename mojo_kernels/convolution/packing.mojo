"""Packs the weights of convolutions, for `forward.mojo`."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.memory import untracked
from ..core.team import task_count
from .packed import HEAD, NOTHING, PANELS, TRANSFORMED, Packed
from .parts import Parts
from .planes import Shape, Window
from .winograd import suits_winograd, transform_all, transformed_size

# Numbers that a task packs at least.
comptime GRAIN = 32768
# Tiles whose products cost as much as it does to read the transformed weights, which are larger.
comptime READ = 100


@register("tmb_pack_convolution")
struct PackConvolution:
    """Weights `[outputs, channels / groups, height, width]` of `tmb_convolution`, packed for images
    of given sizes and what it takes besides. Where `output` is too short nothing is made, and
    the convolution packs them itself."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        weight: InputTensor[dtype=dtype, rank=4, ...],
        batch: Int64,
        height: Int64,
        width: Int64,
        output_height: Int64,
        output_width: Int64,
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
        var shape = Shape(
            Int(batch),
            weight.dim_size[1]() * Int(groups),
            weight.dim_size[0](),
            Int(groups),
            Window(
                Int(height),
                Int(output_height),
                weight.dim_size[2](),
                Int(stride_y),
                Int(padding_y),
                Int(dilation_y),
            ),
            Window(
                Int(width),
                Int(output_width),
                weight.dim_size[3](),
                Int(stride_x),
                Int(padding_x),
                Int(dilation_x),
            ),
        )
        var packed = Packed[dtype](Int(output.unsafe_ptr()))
        packed.tell(NOTHING, 0)
        var room = output.dim_size[0]() - HEAD
        var wp = untracked(weight.unsafe_ptr())
        comptime if dtype == DType.float32:
            if suits_winograd[dtype](shape, READ) and transformed_size[dtype](shape) <= room:
                var units = shape.outputs * shape.depth()
                if transform_all(packed.panels(), wp, shape, task_count(units, units, GRAIN)):
                    packed.tell(TRANSFORMED, 0)
                    return
        var parts = Parts[dtype, False, False](shape)
        if parts.panels_size(shape) <= room:
            parts.pack(packed.panels(), wp, shape)
            packed.tell(PANELS, parts.cuts)
