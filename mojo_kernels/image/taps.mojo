"""Which pixels of an axis an output pixel of a resized image is made of, and how
they weigh: nearest, linear and cubic (Keys, a = -0.75) interpolation, and
antialiased resizing with a triangle, a cubic (a = -0.5) or a Lanczos-3 filter."""

from std.math import ceil, floor, sin

comptime PI = 3.14159265358979323846


@always_inline
def taps_of[kind: StaticString]() -> Int:
    """How many pixels a kind takes; 0 if that depends on the scale."""
    comptime if kind == "nearest" or kind == "nearest_exact":
        return 1
    elif kind == "linear":
        return 2
    elif kind == "cubic":
        return 4
    else:
        return 0


@always_inline
def _near[dtype: DType](x: Scalar[dtype], a: Scalar[dtype]) -> Scalar[dtype]:
    """The cubic kernel of a distance up to 1."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


@always_inline
def _far[dtype: DType](x: Scalar[dtype], a: Scalar[dtype]) -> Scalar[dtype]:
    """The cubic kernel of a distance from 1 to 2."""
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a


@always_inline
def cubic_weight[
    dtype: DType
](k: Int, t: Scalar[dtype]) -> Scalar[dtype]:
    """The weight of pixel `k` of 4, the second of which is `t` to the left."""
    comptime a = Scalar[dtype](-0.75)
    if k == 0:
        return _far(t + 1, a)
    if k == 1:
        return _near(t, a)
    if k == 2:
        return _near(1 - t, a)
    return _far(2 - t, a)


@always_inline
def _sinc[dtype: DType](x: Scalar[dtype]) -> Scalar[dtype]:
    comptime assert dtype.is_floating_point(), "float only"
    if x == 0:
        return 1
    var angle = x * Scalar[dtype](PI)
    return sin(angle) / angle


@always_inline
def _filter[
    kind: StaticString, dtype: DType
](x: Scalar[dtype]) -> Scalar[dtype]:
    comptime assert dtype.is_floating_point(), "float only"
    var distance = abs(x)
    comptime if kind == "linear_aa":
        return 1 - distance if distance < 1 else Scalar[dtype](0)
    elif kind == "cubic_aa":
        comptime a = Scalar[dtype](-0.5)
        if distance < 1:
            return _near(distance, a)
        return _far(distance, a) if distance < 2 else Scalar[dtype](0)
    else:
        if distance >= 3:
            return 0
        return _sinc(distance) * _sinc(distance / 3)


@fieldwise_init
struct Taps[kind: StaticString, dtype: DType](TrivialRegisterPassable):
    """One axis. Pixel `at` of the output is made of `count(at)` pixels from
    `first(at)` on, of which those outside are the ones at the border."""

    var input: Int
    var output: Int
    var ratio: Scalar[Self.dtype]
    var align: Bool
    # One of the two axes of a small plane, which torch rounds in its own way.
    var planar: Bool
    # A dimension that the image lacks: taken as it is.
    var lifted: Bool

    @staticmethod
    @always_inline
    def of(
        input: Int,
        output: Int,
        scale: Float64,
        align: Bool,
        planar: Bool,
        lifted: Bool,
    ) -> Self:
        """An axis; `scale` is 0 unless the caller gave one."""
        var ratio: Scalar[Self.dtype]
        if align:
            ratio = 0
            if output > 1:
                ratio = Scalar[Self.dtype](input - 1) / Scalar[Self.dtype](
                    output - 1
                )
        elif scale > 0:
            ratio = (1 / scale).cast[Self.dtype]()
        else:
            ratio = Scalar[Self.dtype](input) / Scalar[Self.dtype](output)
        return Self(input, output, ratio, align, planar, lifted)

    @always_inline
    def reach(self) -> Scalar[Self.dtype]:
        """Half the width of an antialiasing filter, in pixels of the input."""
        var half: Scalar[Self.dtype] = 3
        comptime if Self.kind == "linear_aa":
            half = 1
        elif Self.kind == "cubic_aa":
            half = 2
        return half * self.ratio if self.ratio >= 1 else half

    @always_inline
    def most(self) -> Int:
        """The most pixels that an output pixel is made of."""
        comptime assert Self.dtype.is_floating_point(), "float only"
        if self.lifted:
            return 1
        comptime if taps_of[Self.kind]() != 0:
            return taps_of[Self.kind]()
        else:
            return Int(ceil(self.reach())) * 2 + 1

    @always_inline
    def source(self, at: Int) -> Scalar[Self.dtype]:
        """Where in the input an output pixel lies."""
        if self.align:
            return self.ratio * Scalar[Self.dtype](at)
        var half = Scalar[Self.dtype](0.5)
        var position = self.ratio.fma(Scalar[Self.dtype](at) + half, -half)
        comptime if Self.kind == "linear":
            return max(position, 0)
        else:
            return position

    @always_inline
    def center(self, at: Int) -> Scalar[Self.dtype]:
        """The middle of an antialiasing filter."""
        return self.ratio * (Scalar[Self.dtype](at) + Scalar[Self.dtype](0.5))

    @always_inline
    def _nearest(self, at: Int) -> Int:
        """The nearest pixel, rounded exactly as torch rounds."""
        comptime exact = Self.kind == "nearest_exact"
        comptime part = 0.5 if exact else 0.0
        comptime half = Scalar[Self.dtype](part)
        if self.planar:
            if not exact and self.output == self.input:
                return at
            if not exact and self.output == 2 * self.input:
                return at // 2
            var ratio = self.ratio.cast[DType.float32]()
            return Int(floor((Float32(at) + Float32(part)) * ratio))
        comptime if Self.dtype == DType.float64:
            var position = (Scalar[Self.dtype](at) + half) * self.ratio
            return Int(floor(position.cast[DType.float32]()))
        elif exact:
            return Int(floor(max(self.source(at), 0) + half))
        else:
            return Int(floor(Scalar[Self.dtype](at) * self.ratio))

    @always_inline
    def first(self, at: Int) -> Int:
        """The first pixel, which may lie outside the image."""
        comptime assert Self.dtype.is_floating_point(), "float only"
        if self.lifted:
            return at
        comptime if taps_of[Self.kind]() == 1:
            return min(self._nearest(at), self.input - 1)
        elif Self.kind == "linear":
            if self.output == self.input:
                return at
            return min(Int(self.source(at)), self.input - 1)
        elif Self.kind == "cubic":
            return min(Int(floor(self.source(at))), self.input - 1) - 1
        else:
            var begin = self.center(at) - self.reach() + Scalar[Self.dtype](0.5)
            return min(max(Int(begin), 0), self.input)

    @always_inline
    def count(self, at: Int) -> Int:
        """How many pixels make up an output pixel."""
        if self.lifted:
            return 1
        comptime if taps_of[Self.kind]() != 0:
            return taps_of[Self.kind]()
        else:
            var end = self.center(at) + self.reach() + Scalar[Self.dtype](0.5)
            var pixels = min(Int(end), self.input) - self.first(at)
            return max(0, min(pixels, self.most()))

    @always_inline
    def weight(self, at: Int, k: Int) -> Scalar[Self.dtype]:
        """The weight of pixel `first(at) + k`, to be divided by `total(at)`."""
        if self.lifted:
            return 1
        comptime if taps_of[Self.kind]() == 1:
            return 1
        elif Self.kind == "linear":
            var part = Scalar[Self.dtype](0)
            if self.output != self.input:
                part = self.source(at) - Scalar[Self.dtype](self.first(at))
                part = min(max(part, 0), 1)
            return part if k == 1 else 1 - part
        elif Self.kind == "cubic":
            var part = self.source(at) - Scalar[Self.dtype](self.first(at) + 1)
            return cubic_weight(k, min(max(part, 0), 1))
        else:
            var distance = (
                Scalar[Self.dtype](k + self.first(at))
                - self.center(at)
                + Scalar[Self.dtype](0.5)
            )
            if self.ratio >= 1:
                distance *= 1 / self.ratio
            return _filter[Self.kind](distance)

    @always_inline
    def total(self, at: Int) -> Scalar[Self.dtype]:
        """What the weights are divided by."""
        comptime if taps_of[Self.kind]() != 0:
            return 1
        else:
            if self.lifted:
                return 1
            var sum = Scalar[Self.dtype](0)
            for k in range(self.count(at)):
                sum += self.weight(at, k)
            return 1 if sum == 0 else sum

    @always_inline
    def inside(self, position: Int) -> Int:
        """A pixel of the image, the one at the border for one outside."""
        return min(max(position, 0), self.input - 1)

    @always_inline
    def pixel(self, at: Int, k: Int) -> Int:
        """The pixel of a tap: of an axis that keeps its size always the same one,
        since the neighbour, though it weighs nothing, may be NaN."""
        comptime if Self.kind == "linear":
            if self.output == self.input:
                return at
        return self.inside(self.first(at) + k)

    @always_inline
    def begin_of(self, pixel: Int) -> Int:
        """The first output that may take a pixel: outputs take ever later ones."""
        var low = 0
        var high = self.output
        while low < high:
            var middle = (low + high) // 2
            if self.inside(self.first(middle) + self.count(middle) - 1) < pixel:
                low = middle + 1
            else:
                high = middle
        return low

    @always_inline
    def end_of(self, pixel: Int) -> Int:
        """The end of the outputs that may take a pixel."""
        var low = 0
        var high = self.output
        while low < high:
            var middle = (low + high) // 2
            if self.inside(self.first(middle)) <= pixel:
                low = middle + 1
            else:
                high = middle
        return low
