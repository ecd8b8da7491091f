"""Taps of some positions of a grid, which all channels share, found several at a time."""

from std.math import ceildiv, floor
from std.sys import simd_width_of

from ..core.memory import Address
from .grid_sample_taps import Axis, Geometry, nearest, pixels_or_zeros, taps_of

# Positions at a time: their taps stay in the cache.
comptime BLOCK = 128


struct Taps[dtype: DType, mode: StaticString, spatial: Int, sloped: Bool = False](
    TrivialRegisterPassable
):
    """The taps of a block of positions, one tap of all positions after the other.

    Two linear taps that lie side by side are one load, the lower first, if an image has two columns.

    Fields:
        pixels: Pixels of a plane, -1 for those outside.
        pairs: Of two taps that lie side by side, where both are in the image.
        weights: What they are multiplied by; if `sloped`, their derivatives by x, y and z, one
            after the other, and then what those of a position are multiplied by.
    """

    comptime TAPS = taps_of[Self.mode, Self.spatial]()
    # Numbers of pixels, and weights, that a block takes.
    comptime NUMBERS = BLOCK * (Self.TAPS + Self.TAPS // 2)
    comptime WEIGHTS = BLOCK * (Self.TAPS + 1) * (Self.spatial if Self.sloped else 1)

    var pixels: Address[DType.int32]
    var pairs: Address[DType.int32]
    var weights: Address[Self.dtype]

    def __init__(out self, numbers: Address[DType.int32], weights: Address[Self.dtype]):
        self.pixels = numbers
        self.pairs = numbers.unsafe_offset(Self.TAPS * BLOCK)
        self.weights = weights

    @always_inline
    def slopes(self, axis: Int) -> Address[Self.dtype]:
        """The derivatives of weights by x, y or z."""
        return self.weights.unsafe_offset(axis * Self.TAPS * BLOCK)

    @always_inline
    def scales(self, axis: Int) -> Address[Self.dtype]:
        """What derivatives by x, y or z are multiplied by, of each position."""
        return self.weights.unsafe_offset((Self.spatial * Self.TAPS + axis) * BLOCK)

    def fill(self, shape: Geometry, grid: Address[Self.dtype], at: Int, count: Int):
        """Find the taps of positions, as many as a block has at most."""
        comptime if Self.mode == "cubic":
            for p in range(count):
                var s = shape.sample[Self.dtype, Self.mode, Self.spatial](grid, at + p)
                comptime for t in range(Self.TAPS):
                    self.pixels[unsafe_offset = t * BLOCK + p] = s.pixels[t]
                    comptime if Self.sloped:
                        self.slopes(0)[unsafe_offset = t * BLOCK + p] = s.by_x[t]
                        self.slopes(1)[unsafe_offset = t * BLOCK + p] = s.by_y[t]
                        comptime if Self.spatial == 3:
                            self.slopes(2)[unsafe_offset = t * BLOCK + p] = s.by_z[t]
                    else:
                        self.weights[unsafe_offset = t * BLOCK + p] = s.weights[t]
                comptime if Self.sloped:
                    comptime for axis in range(Self.spatial):
                        self.scales(axis)[unsafe_offset=p] = s.scales[axis]
        else:
            comptime width = simd_width_of[Self.dtype]()
            var p = 0
            while p + width <= count:
                self._fill_some[width](shape, grid, at + p, p)
                p += width
            while p < count:
                self._fill_some[1](shape, grid, at + p, p)
                p += 1

    @always_inline
    def _fill_some[
        width: Int
    ](self, shape: Geometry, grid: Address[Self.dtype], at: Int, p: Int):
        comptime Some = SIMD[Self.dtype, width]
        comptime Pixels = SIMD[DType.int32, width]
        var x = Some(0)
        var y = Some(0)
        var z = Some(0)
        comptime for lane in range(width):
            var from_ = grid.unsafe_offset((at + lane) * Self.spatial)
            x[lane] = from_[unsafe_offset=0]
            y[lane] = from_[unsafe_offset=1]
            comptime if Self.spatial == 3:
                z[lane] = from_[unsafe_offset=2]
        x = self._bounded(shape.wide, x, 0, p)
        y = self._bounded(shape.high, y, 1, p)
        comptime if Self.spatial == 3:
            z = self._bounded(shape.deep, z, 2, p)
        comptime none = Pixels(-1)
        comptime zero = Pixels(0)
        var high = Int32(shape.high.size)
        var wide = Int32(shape.wide.size)
        comptime if Self.mode == "nearest":
            var column = shape.wide.index(nearest(x))
            var line = shape.high.index(nearest(y))
            var inside = column.ge(zero) & line.ge(zero)
            comptime if Self.spatial == 3:
                var slice = shape.deep.index(nearest(z))
                inside &= slice.ge(zero)
                line += slice * high
            self.pixels.unsafe_store(p, inside.select(line * wide + column, none))
        else:
            var left = floor(x)
            var top = floor(y)
            var front = floor(z)
            var tx = x - left
            var ty = y - top
            var tz = z - front
            var first = shape.wide.index(left)
            var second = shape.wide.index(left + 1)
            var lower = 1 - tx
            var upper = tx
            # At an edge one of two is outside: the pair lies one further in.
            var turned = (first | second).lt(zero) & Pixels(wide).gt(Pixels(1))
            var column = turned.select(second, first)
            second = turned.select(first, second)
            first = column
            lower = turned.select(upper, lower)
            upper = turned.select(1 - tx, upper)
            var begin = max(max(first, second - 1), zero)
            comptime for r in range(Self.TAPS // 2):
                var line = shape.high.index(top + Some(r % 2))
                var weight = ty if r % 2 == 1 else 1 - ty
                var inside = line.ge(zero)
                comptime if Self.spatial == 3:
                    var slice = shape.deep.index(front + Some(r // 2))
                    inside &= slice.ge(zero)
                    line += slice * high
                    weight *= tz if r // 2 == 1 else 1 - tz
                line = inside.select(line * wide, zero)
                self.pairs.unsafe_store(r * BLOCK + p, line + begin)
                comptime for side in range(2):
                    comptime tap = 2 * r + side
                    var column = second if side == 1 else first
                    var valid = inside & column.ge(zero)
                    self.pixels.unsafe_store(
                        tap * BLOCK + p, valid.select(line + column, none)
                    )
                    var share = upper if side == 1 else lower
                    comptime if Self.sloped:
                        var up = turned.select(-weight, weight)
                        self.slopes(0).unsafe_store(tap * BLOCK + p, up if side == 1 else -up)
                        var along_y = share if r % 2 == 1 else -share
                        comptime if Self.spatial == 3:
                            along_y *= tz if r // 2 == 1 else 1 - tz
                            var along_z = share * (ty if r % 2 == 1 else 1 - ty)
                            self.slopes(2).unsafe_store(
                                tap * BLOCK + p, along_z if r // 2 == 1 else -along_z
                            )
                        self.slopes(1).unsafe_store(tap * BLOCK + p, along_y)
                    else:
                        var kept = share * weight
                        comptime if Self.spatial == 3:
                            # No pixel, no term; in planes such a pixel counts as 0.
                            kept = valid.select(kept, Some(0))
                        self.weights.unsafe_store(tap * BLOCK + p, kept)

    @always_inline
    def _bounded[
        width: Int
    ](
        self, axis: Axis, positions: SIMD[Self.dtype, width], number: Int, p: Int
    ) -> SIMD[Self.dtype, width]:
        var found = axis.bounded[spatial = Self.spatial](
            axis.place[spatial = Self.spatial](positions)
        )
        comptime if Self.sloped:
            self.scales(number).unsafe_store(p, found[1] * axis.scale[Self.dtype]())
        return found[0]

    @always_inline
    def pad(self, count: Int):
        """Have no tap behind the last position, up to where a vector ends."""
        comptime width = simd_width_of[Self.dtype]()
        for p in range(count, ceildiv(count, width) * width):
            comptime for t in range(Self.TAPS):
                self.pixels[unsafe_offset = t * BLOCK + p] = -1
            comptime for r in range(Self.TAPS // 2):
                self.pairs[unsafe_offset = r * BLOCK + p] = 0

    @always_inline
    def pair[width: Int](self, plane: Address[Self.dtype], row: Int, p: Int) -> Tuple[
        SIMD[Self.dtype, width], SIMD[Self.dtype, width]
    ]:
        """What a plane has at two taps that lie side by side; of those outside, anything."""
        var both = SIMD[Self.dtype, 2 * width](0)
        comptime for lane in range(width):
            var at = Int(self.pairs[unsafe_offset = row * BLOCK + p + lane])
            both = both.insert[offset = 2 * lane](plane.unsafe_load[width=2](at))
        var found = both.deinterleave()
        return (
            rebind[SIMD[Self.dtype, width]](found[0]),
            rebind[SIMD[Self.dtype, width]](found[1]),
        )

    @always_inline
    def outside[width: Int](self, tap: Int, p: Int) -> SIMD[DType.bool, width]:
        """Of which positions a tap is no pixel."""
        return self.pixels.unsafe_load[width=width](tap * BLOCK + p).lt(0)

    @always_inline
    def sums[
        width: Int, *, paired: Bool
    ](self, plane: Address[Self.dtype], p: Int) -> SIMD[Self.dtype, width]:
        """What a plane has at positions of the block."""
        comptime Some = SIMD[Self.dtype, width]
        var sum = Some(0)
        comptime if paired:
            comptime for r in range(Self.TAPS // 2):
                var pair = self.pair[width](plane, r, p)
                comptime for side in range(2):
                    comptime tap = 2 * r + side
                    var value = self.outside[width](tap, p).select(Some(0), pair[side])
                    sum = value.fma(self.weights.unsafe_load[width=width](tap * BLOCK + p), sum)
            return sum
        comptime for t in range(Self.TAPS):
            var at = t * BLOCK + p
            var value = pixels_or_zeros(plane, self.pixels.unsafe_load[width=width](at))
            comptime if Self.TAPS == 1:
                sum = value
            else:
                sum = value.fma(self.weights.unsafe_load[width=width](at), sum)
        return sum

    def store_sums[
        *, paired: Bool
    ](self, plane: Address[Self.dtype], to: Address[Self.dtype], count: Int):
        """Store what a plane has at the positions of the block."""
        comptime width = simd_width_of[Self.dtype]()
        var p = 0
        while p + width <= count:
            to.unsafe_store(p, self.sums[width, paired=paired](plane, p))
            p += width
        while p < count:
            to[unsafe_offset=p] = self.sums[1, paired=paired](plane, p)
            p += 1
