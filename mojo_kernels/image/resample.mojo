"""Resizing of images `[batch, channels, depth, height, width]`.

Resizing is separable. GPUs compute each pixel by itself, a CPU by rows."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext

from ..core.each import foreach
from ..core.memory import untracked
from .resample_rows import resize
from .resample_table import Owner, axes, sum_type, weight_type
from .taps import taps_of


@register("tmb_resample")
struct Resample:
    """Images resized to the output's size.

    Inputs are the images, whether corners are aligned, the number of spatial
    dimensions (the last ones) and the three scales, 0 where none is given."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=5, ...],
        x: InputTensor[dtype=dtype, rank=5, ...],
        align: Int64,
        spatial: Int64,
        scale_d: Float64,
        scale_h: Float64,
        scale_w: Float64,
        ctx: DeviceContext,
    ) raises:
        if output.size() == 0:
            return
        if x.size() == 0:
            raise Error("an image without pixels cannot be resized")
        comptime floating = weight_type[kind, dtype]()
        comptime bytes = dtype == DType.uint8 and taps_of[kind]() != 1
        var extent = output.dim_size[3]() + output.dim_size[4]()
        var planar = spatial == 2 and extent <= 128
        var axes = axes[kind, floating, bytes](
            Tuple(x.dim_size[2](), x.dim_size[3](), x.dim_size[4]()),
            Tuple(
                output.dim_size[2](), output.dim_size[3](), output.dim_size[4]()
            ),
            Tuple(scale_d, scale_h, scale_w),
            align != 0,
            planar,
            Int(spatial),
        )
        var deep = axes[0]
        var high = axes[1]
        var wide = axes[2]
        comptime if target == "cpu":
            comptime sum = sum_type[kind, dtype]()
            var deep_owner = Owner[sum](deep)
            var high_owner = Owner[sum](high)
            var wide_owner = Owner[sum](wide)
            resize[kind](
                untracked(x.unsafe_ptr()),
                untracked(output.unsafe_ptr()),
                output.dim_size[0]() * output.dim_size[1](),
                deep_owner.table(),
                high_owner.table(),
                wide_owner.table(),
            )
            _ = deep_owner^
            _ = high_owner^
            _ = wide_owner^
        else:
            var channels = x.dim_size[1]()
            var source = x.unsafe_ptr()

            @always_inline
            def body[
                width: Int
            ](idx: Coord[...]) {
                var channels, var deep, var high, var wide, var source
            } -> SIMD[dtype, width]:
                var result = SIMD[dtype, width](0)
                var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
                var z = Int(idx[2].value())
                var y = Int(idx[3].value())
                for lane in range(width):
                    var x = Int(idx[4].value()) + lane
                    comptime if taps_of[kind]() == 1:
                        var at = (
                            plane * deep.input + deep.first(z)
                        ) * high.input + high.first(y)
                        result[lane] = source[
                            unsafe_offset=at * wide.input + wide.first(x)
                        ]
                        continue
                    var sum = Scalar[floating](0)
                    for i in range(deep.count(z)):
                        var slice = plane * deep.input + deep.inside(
                            deep.first(z) + i
                        )
                        for j in range(high.count(y)):
                            var row = slice * high.input + high.inside(
                                high.first(y) + j
                            )
                            var part = Scalar[floating](0)
                            for k in range(wide.count(x)):
                                var at = wide.inside(wide.first(x) + k)
                                var pixel = source[
                                    unsafe_offset=row * wide.input + at
                                ].cast[floating]()
                                part += pixel * wide.weight(x, k)
                            sum += part * deep.weight(z, i) * high.weight(y, j)
                    sum /= deep.total(z) * high.total(y) * wide.total(x)
                    comptime if dtype.is_integral():
                        sum = min(max(sum + Scalar[floating](0.5), 0), 255)
                    result[lane] = sum.cast[dtype]()
                return result

            foreach[target=target](body, output, ctx)
