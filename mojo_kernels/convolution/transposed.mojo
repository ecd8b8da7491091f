"""Transposed convolution of channels-first images, which is also the gradient of a convolution's input:
of every `stride`-th pixel of the result a plain convolution by the taps that reach it, of the
weights turned round."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, gcd
from std.memory import Pointer
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load, masked_store

from ..core.memory import Address, Untracked, untracked
from ..core.team import in_ranges
from ..core.vectors import below
from .finish import NONE, Finish, Norm
from .kinds import convolve
from .planes import MASKED, Shape, Window

# Numbers that a task copies.
comptime GRAIN = 32768


@fieldwise_init
struct Axis(TrivialRegisterPassable):
    """How one axis of the input is spread over that of the result."""

    var input: Int
    var output: Int
    var kernel: Int
    var stride: Int
    var padding: Int
    var dilation: Int

    @always_inline
    def reaches(self, phase: Int, tap: Int) -> Bool:
        """Whether a tap reaches the pixels that lie `phase` past a multiple of the stride."""
        return (phase + self.padding - tap * self.dilation) % self.stride == 0

    @always_inline
    def taps(self, phase: Int) -> Int:
        """How many taps reach them."""
        var count = 0
        for tap in range(self.kernel):
            count += Int(self.reaches(phase, tap))
        return count

    @always_inline
    def last(self, phase: Int) -> Int:
        """The last tap that does, which meets the first input."""
        var tap = self.kernel - 1
        while not self.reaches(phase, tap):
            tap -= 1
        return tap

    @always_inline
    def apart(self) -> Int:
        """How far apart such taps are."""
        return self.stride // gcd(self.stride, self.dilation)

    @always_inline
    def pixels(self, phase: Int) -> Int:
        """How many such pixels there are."""
        return ceildiv(max(0, self.output - phase), self.stride)

    @always_inline
    def window(self, phase: Int) -> Window:
        """The plain convolution that makes them; at least one tap reaches them."""
        var first = (phase + self.padding - self.last(phase) * self.dilation) // self.stride
        var dilation = self.dilation // gcd(self.stride, self.dilation)
        return Window(self.input, self.pixels(phase), self.taps(phase), 1, -first, dilation)


@fieldwise_init
struct _Weights[dtype: DType](TrivialRegisterPassable):
    """The weights `[inputs, outputs / groups, *kernel]`."""

    var start: Pointer[Scalar[Self.dtype], Untracked]
    var inputs: Int
    var outputs: Int
    var groups: Int
    var high: Axis
    var wide: Axis

    def turned(self, to: Address[Self.dtype], phase_y: Int, phase_x: Int):
        """Writes those that reach a phase as a plain convolution takes them,
        `[outputs, inputs / groups, *taps]`, the last tap first."""
        var rows = self.high.taps(phase_y)
        var columns = self.wide.taps(phase_x)
        var inputs = self.inputs // self.groups
        var outputs = self.outputs // self.groups
        var taps = self.high.kernel * self.wide.kernel
        var tap = self.high.last(phase_y) * self.wide.kernel + self.wide.last(phase_x)
        var down = self.high.apart() * self.wide.kernel
        var across = self.wide.apart()
        var start = untracked(self.start)
        var each = max(1, GRAIN // max(1, inputs * rows * columns))

        def work(lower: Int, upper: Int) {
            var start, var to, var rows, var columns, var inputs, var outputs, var taps, var tap,
            var down, var across
        }:
            comptime width = simd_width_of[Self.dtype]()
            for output in range(lower, upper):
                var group = output // outputs
                for input in range(inputs):
                    var place = (group * inputs + input) * outputs + output % outputs
                    var from_ = start.unsafe_offset(place * taps)
                    var sink = to.unsafe_offset((output * inputs + input) * rows * columns)
                    comptime if MASKED and width == 16:
                        if rows == 3 and columns == 3 and taps == 9:
                            var inside = below[width](9)
                            var zero = SIMD[Self.dtype, width](0)
                            var v = masked_load[width](from_, inside, zero)
                            var back = v.shuffle[
                                8, 7, 6, 5, 4, 3, 2, 1, 0, 9, 10, 11, 12, 13, 14, 15
                            ]()
                            masked_store(back, sink, inside)
                            continue
                    for y in range(rows):
                        for x in range(columns):
                            sink[unsafe_offset = y * columns + x] = from_[
                                unsafe_offset = tap - y * down - x * across
                            ]

        in_ranges(work, self.outputs, ceildiv(self.outputs, each))


def _spread[
    dtype: DType, //
](
    op: Address[dtype],
    part: Address[dtype],
    values: Address[dtype],
    valued: Bool,
    met: Bool,
    planes: Int,
    channels: Int,
    high: Axis,
    wide: Axis,
    phase_y: Int,
    phase_x: Int,
):
    """Writes a phase's pixels to where they belong; one of `values` for each channel, 0 without,
    where no tap has `met` them."""
    var rows = high.pixels(phase_y)
    var columns = wide.pixels(phase_x)
    var each = max(1, GRAIN // max(1, rows * columns))

    def work(lower: Int, upper: Int) {
        var op, var part, var values, var met, var channels, var high, var wide, var phase_y,
        var phase_x, var rows, var columns, var valued
    }:
        for plane in range(lower, upper):
            var value = Scalar[dtype](0)
            if valued:
                value = values[unsafe_offset = plane % channels]
            for y in range(rows):
                var row = plane * high.output + y * high.stride + phase_y
                var sink = op.unsafe_offset(row * wide.output + phase_x)
                var source = part.unsafe_offset((plane * rows + y) * columns)
                for x in range(columns):
                    sink[unsafe_offset = x * wide.stride] = (
                        source[unsafe_offset=x] if met else value
                    )

    in_ranges(work, planes, ceildiv(planes, each))


@register("tmb_convolution_transposed")
struct ConvolutionTransposed:
    """`[batch, inputs, height, width]` with weights `[inputs, outputs / groups, height, width]`
    and a bias, which may be empty for none."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        weight: InputTensor[dtype=dtype, rank=4, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
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
        comptime assert dtype.is_floating_point(), "float only"
        var batch = output.dim_size[0]()
        var outputs = output.dim_size[1]()
        var inputs = x.dim_size[1]()
        var high = Axis(
            x.dim_size[2](),
            output.dim_size[2](),
            weight.dim_size[2](),
            Int(stride_y),
            Int(padding_y),
            Int(dilation_y),
        )
        var wide = Axis(
            x.dim_size[3](),
            output.dim_size[3](),
            weight.dim_size[3](),
            Int(stride_x),
            Int(padding_x),
            Int(dilation_x),
        )
        if batch * outputs * high.output * wide.output == 0:
            return
        var op = untracked(output.unsafe_ptr())
        var xp = untracked(x.unsafe_ptr())
        var weights = _Weights(
            untracked(weight.unsafe_ptr()),
            inputs,
            outputs,
            Int(groups),
            high,
            wide,
        )
        var biased = bias.dim_size[0]() != 0
        var address = Int(bias.unsafe_ptr()) if biased else 0
        var norm = Norm[dtype](address, 0, 0, 0, 0, Scalar[dtype](0))
        var factors = List[Scalar[dtype]](unsafe_uninit_length=2 * outputs)
        var fp = untracked(factors.unsafe_ptr())
        if biased:
            norm.factors(fp, outputs)
        var finish = Finish[dtype](Int(fp) if biased else 0, 0, outputs, False, NONE)
        var whole = high.stride * wide.stride == 1
        var pixels = high.pixels(0) * wide.pixels(0)
        var part = List[Scalar[dtype]](
            unsafe_uninit_length=1 if whole else batch * outputs * pixels
        )
        var pp = untracked(part.unsafe_ptr())
        var taps = high.kernel * wide.kernel
        var turned = List[Scalar[dtype]](
            unsafe_uninit_length=max(1, outputs * (inputs // Int(groups)) * taps)
        )
        var tp = untracked(turned.unsafe_ptr())
        for phase_y in range(min(high.stride, high.output)):
            for phase_x in range(min(wide.stride, wide.output)):
                var count = high.taps(phase_y) * wide.taps(phase_x)
                var met = count * inputs * high.input * wide.input != 0
                var to = op if whole else pp
                if met:
                    var shape = Shape(
                        batch,
                        inputs,
                        outputs,
                        Int(groups),
                        high.window(phase_y),
                        wide.window(phase_x),
                    )
                    weights.turned(tp, phase_y, phase_x)
                    convolve(to, xp, tp, shape, finish)
                if whole and met:
                    break
                var values = untracked(bias.unsafe_ptr())
                _spread(
                    op,
                    to,
                    values,
                    biased,
                    met,
                    batch * outputs,
                    outputs,
                    high,
                    wide,
                    phase_y,
                    phase_x,
                )
        _ = factors^
        _ = part^
        _ = turned^
