"""What follows a convolution in a network, done to its sums while they are in the cache."""

from std.math import iota, sqrt
from std.memory import Pointer
from std.sys import simd_width_of
from std.sys.intrinsics import masked_load, masked_store

from ..core.memory import Address
from ..gemm.blas import activated


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
struct Finish[dtype: DType, activation: StaticString](TrivialRegisterPassable):
    """What is done to the sums: `v scale + shift + residual`, activated."""

    # Addresses: what `Norm.factors` wrote, and of numbers like the output; 0 for none.
    var factors: Int
    var residual: Int
    var channels: Int

    @always_inline
    def idle(self) -> Bool:
        """Whether the sums are the result."""
        return self.factors == 0 and self.residual == 0 and Self.activation == "none"

    @no_inline
    def apply(
        self,
        to: Address[Self.dtype],
        line: Address[Self.dtype],
        channel: Int,
        position: Int,
        count: Int,
    ):
        """Finishes `count` sums of a channel, for `position` of the output."""
        comptime assert Self.dtype.is_floating_point(), "float only"
        comptime width = simd_width_of[Self.dtype]()
        comptime Some = SIMD[Self.dtype, width]
        var scale = Some(1)
        var shift = Some(0)
        if self.factors != 0:
            var factors = at_address[Self.dtype](self.factors)
            scale = Some(factors[unsafe_offset=channel])
            shift = Some(factors[unsafe_offset = self.channels + channel])
        var other = at_address[Self.dtype](self.residual).unsafe_offset(position)
        var i = 0
        while i + width <= count:
            var v = line.unsafe_load[width=width](i).fma(scale, shift)
            if self.residual != 0:
                v += other.unsafe_load[width=width](i)
            to.unsafe_store[width=width](i, activated[Self.activation](v))
            i += width
        if i < count:
            var inside = iota[DType.int32, width]().lt(Int32(count - i))
            var v = masked_load[width](line.unsafe_offset(i), inside, Some(0)).fma(scale, shift)
            if self.residual != 0:
                v += masked_load[width](other.unsafe_offset(i), inside, Some(0))
            masked_store(activated[Self.activation](v), to.unsafe_offset(i), inside)

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
        to.unsafe_store[width=width](0, activated[Self.activation](v))
