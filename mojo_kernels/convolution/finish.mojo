"""What follows a convolution in a network, done to its sums while they are in the cache."""

from std.math import iota, sqrt
from std.memory import Pointer
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load, masked_store

from ..core.memory import Address
from ..core.rounding import bits_of, from_bits, to_memory
from ..gemm.activations import ACTIVATIONS, NONE, activated, activation_name


@always_inline
def at_address[dtype: DType](address: Int) -> Address[dtype]:
    """What lies at an address."""
    var place = address
    return Pointer(to=place).unsafe_bitcast[Address[dtype]]()[]


@fieldwise_init
struct Norm[dtype: DType](TrivialRegisterPassable):
    """A bias and a batch norm of known statistics: the addresses of a number for each channel, 0
    for what is left out."""

    var bias: Int
    var weight: Int
    var offset: Int
    var mean: Int
    var variance: Int
    var epsilon: Scalar[Self.dtype]

    @always_inline
    def idle(self) -> Bool:
        """Whether it changes nothing."""
        return self.bias == 0 and self.variance == 0

    @always_inline
    def _factors[width: Int](self, to: Address[Self.dtype], channels: Int, channel: Int):
        comptime assert Self.dtype.is_floating_point(), "float only"
        comptime Some = SIMD[Self.dtype, width]
        var scale = Some(1)
        var shift = Some(0)
        if self.bias != 0:
            shift = at_address[Self.dtype](self.bias).unsafe_load[width=width](channel)
        if self.variance != 0:
            var variance = at_address[Self.dtype](self.variance)
            scale = 1 / sqrt(variance.unsafe_load[width=width](channel) + Some(self.epsilon))
            if self.weight != 0:
                var weight = at_address[Self.dtype](self.weight)
                scale *= weight.unsafe_load[width=width](channel)
            var mean = at_address[Self.dtype](self.mean)
            shift = (shift - mean.unsafe_load[width=width](channel)) * scale
            if self.offset != 0:
                shift += at_address[Self.dtype](self.offset).unsafe_load[width=width](channel)
        to.unsafe_store[width=width](channel, scale)
        to.unsafe_store[width=width](channels + channel, shift)

    @always_inline
    def factors(self, to: Address[Self.dtype], channels: Int):
        """Writes what each channel's sums are multiplied by, then what is added to them."""
        comptime width = simd_width_of[Self.dtype]()
        var channel = 0
        while channel + width <= channels:
            self._factors[width](to, channels, channel)
            channel += width
        while channel < channels:
            self._factors[1](to, channels, channel)
            channel += 1


@fieldwise_init
struct Finish[dtype: DType, to_type: DType = dtype](TrivialRegisterPassable):
    """What is done to the sums: `v scale + shift + residual`, activated. Where the result has a
    narrower type, each operator's result is rounded to it, as it would be without this."""

    # Addresses: what `Norm.factors` wrote, and of numbers like the output; 0 for none.
    var factors: Int
    var residual: Int
    var channels: Int
    # Whether the factors are of a batch norm: an operator after the convolution.
    var normed: Bool
    # The number of an activation.
    var activation: Int

    @always_inline
    def _rounded[
        width: Int
    ](self, v: SIMD[Self.dtype, width]) -> SIMD[Self.dtype, width]:
        comptime if Self.to_type == Self.dtype:
            return v
        else:
            return to_memory[Self.to_type](v).cast[Self.dtype]()

    @staticmethod
    def none() -> Self:
        """Leaves sums as they are."""
        return Self(0, 0, 0, False, NONE)

    @always_inline
    def idle(self) -> Bool:
        """Whether the sums are the result."""
        return self.factors == 0 and self.residual == 0 and self.activation == NONE

    @always_inline
    def apply(
        self,
        to: Address[Self.to_type],
        line: Address[Self.dtype],
        channel: Int,
        position: Int,
        count: Int,
    ):
        """Finishes `count` sums of a channel, for `position` of the output."""
        comptime for kind in range(ACTIVATIONS):
            if self.activation == kind:
                self._apply[activation_name(kind)](to, line, channel, position, count)

    @no_inline
    def _apply[
        activation: StaticString
    ](
        self,
        to: Address[Self.to_type],
        line: Address[Self.dtype],
        channel: Int,
        position: Int,
        count: Int,
    ):
        comptime assert Self.dtype.is_floating_point(), "float only"
        comptime width = simd_width_of[Self.dtype]()
        comptime Some = SIMD[Self.dtype, width]
        var scale = Some(1)
        var shift = Some(0)
        if self.factors != 0:
            var factors = at_address[Self.dtype](self.factors)
            scale = Some(factors[unsafe_offset=channel])
            shift = Some(factors[unsafe_offset = self.channels + channel])
        var other = at_address[Self.to_type](self.residual).unsafe_offset(position)
        var i = 0
        while i + width <= count:
            var v = line.unsafe_load[width=width](i)
            if self.normed:
                v = self._rounded(v)
            v = v.fma(scale, shift)
            if self.residual != 0:
                v = self._rounded(v) + other.unsafe_load[width=width](i).cast[Self.dtype]()
            to.unsafe_store[width=width](i, to_memory[Self.to_type](activated[activation](v)))
            i += width
        if i < count:
            var inside = iota[DType.int32, width]().lt(Int32(count - i))
            var v = masked_load[width](line.unsafe_offset(i), inside, Some(0))
            if self.normed:
                v = self._rounded(v)
            v = v.fma(scale, shift)
            if self.residual != 0:
                v = self._rounded(v) + self._some[width](other.unsafe_offset(i), inside)
            self._keep(activated[activation](v), to.unsafe_offset(i), inside)

    @always_inline
    def _some[
        width: Int
    ](self, source: Address[Self.to_type], inside: SIMD[DType.bool, width]) -> SIMD[
        Self.dtype, width
    ]:
        # Not every build has masked vectors of bfloat16: its bits are as good.
        comptime if Self.to_type == DType.bfloat16:
            var zero = SIMD[DType.uint16, width](0)
            var bits = masked_load[width](source.unsafe_bitcast[UInt16](), inside, zero)
            return rebind[SIMD[Self.dtype, width]](from_bits(bits))
        else:
            var zero = SIMD[Self.to_type, width](0)
            return masked_load[width](source, inside, zero).cast[Self.dtype]()

    @always_inline
    def _keep[
        width: Int
    ](
        self,
        v: SIMD[Self.dtype, width],
        to: Address[Self.to_type],
        inside: SIMD[DType.bool, width],
    ):
        comptime if Self.to_type == DType.bfloat16:
            var bits = bits_of(rebind[SIMD[DType.float32, width]](v))
            masked_store(bits, to.unsafe_bitcast[UInt16](), inside)
        else:
            masked_store(to_memory[Self.to_type](v), to, inside)

    @no_inline
    def apply_to_channels(
        self, to: Address[Self.dtype], first: Int, position: Int, count: Int
    ):
        """Finishes a sum of each of `count` channels, for `position` of the output."""
        comptime width = simd_width_of[Self.dtype]()
        var i = 0
        while i + width <= count:
            self._finish_channels[width](to.unsafe_offset(i), first + i, position + i)
            i += width
        while i < count:
            self._finish_channels[1](to.unsafe_offset(i), first + i, position + i)
            i += 1

    @always_inline
    def _finish_channels[
        width: Int
    ](self, to: Address[Self.dtype], channel: Int, position: Int):
        comptime assert Self.dtype.is_floating_point(), "float only"
        var v = to.unsafe_load[width=width](0)
        if self.factors != 0:
            var factors = at_address[Self.dtype](self.factors)
            v = v.fma(
                factors.unsafe_load[width=width](channel),
                factors.unsafe_load[width=width](self.channels + channel),
            )
        if self.residual != 0:
            var other = at_address[Self.dtype](self.residual)
            v += other.unsafe_load[width=width](position)
        comptime for kind in range(ACTIVATIONS):
            if self.activation == kind:
                to.unsafe_store[width=width](0, activated[activation_name(kind)](v))
