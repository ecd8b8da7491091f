"""Positions of a grid as a few taps, pixels of a plane with weights, which all channels share."""

from std.math import floor
from std.utils.numerics import isnan

from ..core.memory import Address
from .taps import cubic_weight

comptime ZEROS = 0
comptime BORDER = 1


@always_inline
def taps_of[mode: StaticString, spatial: Int]() -> Int:
    """How many pixels a position takes."""
    comptime if mode == "nearest":
        return 1
    elif mode == "cubic":
        return 16 if spatial == 2 else 64
    else:
        return 4 if spatial == 2 else 8


@fieldwise_init
struct Axis(TrivialRegisterPassable):
    """An axis of the image and how positions beyond it are meant."""

    var size: Int
    var padding: Int
    var align: Bool

    @always_inline
    def place[
        dtype: DType, width: SIMDLength, //, spatial: Int
    ](self, position: SIMD[dtype, width]) -> SIMD[dtype, width]:
        """Positions of the grid in pixels."""
        comptime one = SIMD[dtype, width](1)
        comptime half = SIMD[dtype, width](0.5)
        var size = SIMD[dtype, width](Scalar[dtype](self.size))
        # Rounded as torch rounds: halves decide which pixel is nearest.
        comptime if spatial == 2:
            if self.align:
                return (position + one) * ((size - one) * half)
            return (position + one) * (size * half) - half
        else:
            if self.align:
                return (position + one) * half * (size - one)
            return ((position + one) * size - one) * half

    @always_inline
    def scale[dtype: DType](self) -> Scalar[dtype]:
        """Pixels for a unit of the grid."""
        return Scalar[dtype](self.size - 1 if self.align else self.size) / 2

    @always_inline
    def bounded[
        dtype: DType, width: SIMDLength, //, spatial: Int
    ](self, position: SIMD[dtype, width]) -> Tuple[SIMD[dtype, width], SIMD[dtype, width]]:
        """Positions brought into the image, and their slopes."""
        comptime assert dtype.is_floating_point(), "float only"
        comptime one = SIMD[dtype, width](1)
        comptime zero = SIMD[dtype, width](0)
        if self.padding == ZEROS:
            return (position, one)
        var at = position
        var slope = one
        if self.padding != BORDER:
            var low = SIMD[dtype, width](Scalar[dtype](0.0 if self.align else -0.5))
            var span = Scalar[dtype](self.size - 1 if self.align else self.size)
            if span == 0:
                return (zero, zero)
            at = position - low
            slope = at.lt(zero).select(-one, one)
            at = abs(at)
            var flips = floor(at / SIMD[dtype, width](span))
            var extra = at - flips * span
            var even = (floor(flips / 2) * 2).eq(flips)
            at = even.select(extra + low, span - extra + low)
            slope = even.select(slope, -slope)
        var last = SIMD[dtype, width](Scalar[dtype](self.size - 1))
        # As in torch: NaN is the first pixel of a plane, the last of a volume.
        comptime if spatial == 2:
            at = at.gt(zero).select(at, zero)
        else:
            at = at.le(zero).select(zero, at)
        var inside = at.gt(zero) & at.lt(last)
        at = at.lt(last).select(at, last)
        return (at, inside.select(slope, zero))

    @always_inline
    def index[
        dtype: DType, width: SIMDLength, //
    ](self, position: SIMD[dtype, width]) -> SIMD[DType.int32, width]:
        """The pixels of whole positions, -1 for those outside."""
        var size = SIMD[dtype, width](Scalar[dtype](self.size))
        var inside = position.ge(SIMD[dtype, width](0)) & position.lt(size)
        return inside.select(position, SIMD[dtype, width](-1)).cast[DType.int32]()


@always_inline
def nearest[
    dtype: DType, width: SIMDLength, //
](position: SIMD[dtype, width]) -> SIMD[dtype, width]:
    """Positions rounded, halves to the even pixel."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime half = SIMD[dtype, width](0.5)
    var low = floor(position)
    var part = position - low
    var odd = (floor(low / 2) * 2).ne(low)
    var up = part.gt(half) | (part.eq(half) & odd)
    return up.select(low + 1, low)


@always_inline
def _slope_of_cubic[
    dtype: DType
](k: Int, t: Scalar[dtype]) -> Scalar[dtype]:
    """The derivative by `t` of `cubic_weight`."""
    comptime a = Scalar[dtype](-0.75)
    var x = t + 1 - Scalar[dtype](k)
    var sign = Scalar[dtype](1)
    if x < 0:
        x = -x
        sign = -1
    if k == 1 or k == 2:
        return sign * (3 * (a + 2) * x - 2 * (a + 3)) * x
    return sign * ((3 * a * x - 10 * a) * x + 8 * a)


@fieldwise_init
struct Sample[dtype: DType, taps: Int](TrivialRegisterPassable):
    """The taps of a position: pixels of a plane (-1: none), their weights and the
    derivatives of those by x, y and z, to be multiplied by `scales`."""

    var pixels: SIMD[DType.int32, Self.taps]
    var weights: SIMD[Self.dtype, Self.taps]
    var by_x: SIMD[Self.dtype, Self.taps]
    var by_y: SIMD[Self.dtype, Self.taps]
    var by_z: SIMD[Self.dtype, Self.taps]
    var scales: SIMD[Self.dtype, 4]


@always_inline
def sample[
    dtype: DType, //, mode: StaticString, spatial: Int
](
    x: Scalar[dtype],
    y: Scalar[dtype],
    z: Scalar[dtype],
    wide: Axis,
    high: Axis,
    deep: Axis,
) -> Sample[dtype, taps_of[mode, spatial]()]:
    """The taps of a position of the grid."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime taps = taps_of[mode, spatial]()
    var pixels = SIMD[DType.int32, taps](-1)
    var weights = SIMD[dtype, taps](1)
    var by_x = SIMD[dtype, taps](0)
    var by_y = SIMD[dtype, taps](0)
    var by_z = SIMD[dtype, taps](0)
    var scales = SIMD[dtype, 4](
        wide.scale[dtype](), high.scale[dtype](), deep.scale[dtype](), 0
    )
    var px = wide.place[spatial=spatial](x)
    var py = high.place[spatial=spatial](y)
    comptime if mode == "cubic":
        var left = floor(px)
        var top = floor(py)
        var front = Scalar[dtype](0)
        var tx = px - left
        var ty = py - top
        var tz = Scalar[dtype](0)
        comptime if spatial == 3:
            var pz = deep.place[spatial=spatial](z)
            front = floor(pz)
            tz = pz - front
        comptime for k in range(taps // 16):
            var slice = Int32(0)
            var wz = Scalar[dtype](1)
            var slope = Scalar[dtype](0)
            comptime if spatial == 3:
                slice = deep.index(
                    floor(deep.bounded[spatial=spatial](front + Scalar[dtype](k - 1))[0])
                )
                wz = cubic_weight(k, tz)
                slope = _slope_of_cubic(k, tz)
            comptime for j in range(4):
                var row = high.index(
                    floor(high.bounded[spatial=spatial](top + Scalar[dtype](j - 1))[0])
                )
                var wy = cubic_weight(j, ty)
                comptime for i in range(4):
                    comptime t = (k * 4 + j) * 4 + i
                    var column = wide.index(
                        floor(wide.bounded[spatial=spatial](left + Scalar[dtype](i - 1))[0])
                    )
                    if row >= 0 and column >= 0 and slice >= 0:
                        pixels[t] = (slice * Int32(high.size) + row) * Int32(wide.size) + column
                    var wx = cubic_weight(i, tx)
                    weights[t] = wx * wy * wz
                    by_x[t] = _slope_of_cubic(i, tx) * wy * wz
                    by_y[t] = wx * _slope_of_cubic(j, ty) * wz
                    by_z[t] = wx * wy * slope
    else:
        var bx = wide.bounded[spatial=spatial](px)
        var by = high.bounded[spatial=spatial](py)
        var bz = Tuple(Scalar[dtype](0), Scalar[dtype](0))
        comptime if spatial == 3:
            bz = deep.bounded[spatial=spatial](deep.place[spatial=spatial](z))
        scales *= SIMD[dtype, 4](bx[1], by[1], bz[1], 0)
        comptime if mode == "nearest":
            var column = wide.index(nearest(bx[0]))
            var row = high.index(nearest(by[0]))
            var slice = deep.index(nearest(bz[0]))
            if column >= 0 and row >= 0 and slice >= 0:
                pixels[0] = (slice * Int32(high.size) + row) * Int32(wide.size) + column
        else:
            var left = floor(bx[0])
            var top = floor(by[0])
            var front = floor(bz[0])
            var tx = bx[0] - left
            var ty = by[0] - top
            var tz = bz[0] - front
            comptime for t in range(taps):
                comptime dx = t % 2
                comptime dy = t // 2 % 2
                comptime dz = t // 4
                var column = wide.index(left + Scalar[dtype](dx))
                var row = high.index(top + Scalar[dtype](dy))
                var slice = deep.index(front + Scalar[dtype](dz))
                if column >= 0 and row >= 0 and slice >= 0:
                    pixels[t] = (slice * Int32(high.size) + row) * Int32(wide.size) + column
                var wx = tx if dx == 1 else 1 - tx
                var wy = ty if dy == 1 else 1 - ty
                var wz = Scalar[dtype](1)
                comptime if spatial == 3:
                    wz = tz if dz == 1 else 1 - tz
                weights[t] = wx * wy * wz
                by_x[t] = (wy if dx == 1 else -wy) * wz
                by_y[t] = (wx if dy == 1 else -wx) * wz
                by_z[t] = (wx if dz == 1 else -wx) * wy
    comptime if spatial == 3 and mode != "cubic":
        # No pixel, no term; in planes, and for cubics, such a pixel counts as 0.
        var none = pixels.lt(SIMD[DType.int32, taps](0))
        weights = none.select(SIMD[dtype, taps](0), weights)
    return Sample[dtype, taps](pixels, weights, by_x, by_y, by_z, scales)


@fieldwise_init
struct Geometry(TrivialRegisterPassable):
    """Sizes of images and grids."""

    var batch: Int
    var channels: Int
    var deep: Axis
    var high: Axis
    var wide: Axis
    # Positions of a grid, and pixels of a plane.
    var positions: Int
    var pixels: Int

    @always_inline
    def sample[
        dtype: DType,
        mode: StaticString,
        spatial: Int,
    ](self, grid: Address[dtype], at: Int) -> Sample[
        dtype, taps_of[mode, spatial]()
    ]:
        """The taps of position `at` of all grids."""
        var from_ = grid.unsafe_offset(at * spatial)
        var z = Scalar[dtype](0)
        comptime if spatial == 3:
            z = from_[unsafe_offset=2]
        return sample[mode, spatial](
            from_[unsafe_offset=0],
            from_[unsafe_offset=1],
            z,
            self.wide,
            self.high,
            self.deep,
        )


@always_inline
def pixels_or_zeros[
    dtype: DType, width: SIMDLength
](
    plane: Address[dtype], pixels: SIMD[DType.int32, width]
) -> SIMD[dtype, width]:
    """Pixels of a plane, 0 for those outside."""
    return plane.unsafe_gather(
        max(pixels, SIMD[DType.int32, width](0)),
        pixels.ge(SIMD[DType.int32, width](0)),
        SIMD[dtype, width](0),
    )


def geometry(
    batch: Int,
    channels: Int,
    sizes: Tuple[Int, Int, Int],
    positions: Int,
    padding: Int,
    align: Bool,
) raises -> Geometry:
    var pixels = sizes[0] * sizes[1] * sizes[2]
    if pixels == 0:
        raise Error("an image without pixels cannot be sampled")
    if pixels >= 1 << 31:
        raise Error("an image of more than 2 billion pixels cannot be sampled")
    return Geometry(
        batch,
        channels,
        Axis(sizes[0], padding, align),
        Axis(sizes[1], padding, align),
        Axis(sizes[2], padding, align),
        positions,
        pixels,
    )
