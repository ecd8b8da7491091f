"""The taps of each output pixel of an axis of a resized image, and their weights, as tables."""

from ..core.memory import Address, untracked
from .taps import Taps, taps_of

# Taps at a time; tables have room for as many more.
comptime CHUNK = 8


@always_inline
def weight_type[kind: StaticString, dtype: DType]() -> DType:
    """The type that positions and weights are computed in."""
    comptime bytes = dtype == DType.uint8 and taps_of[kind]() != 1
    comptime exact = dtype == DType.float64 or bytes
    return DType.float64 if exact else DType.float32


@always_inline
def sum_type[kind: StaticString, dtype: DType]() -> DType:
    """The type of sums: bytes are weighed by integers, as Pillow does."""
    comptime if taps_of[kind]() == 1:
        return dtype
    elif dtype == DType.uint8:
        return DType.int32
    else:
        return weight_type[kind, dtype]()


@fieldwise_init
struct Table[dtype: DType](TrivialRegisterPassable):
    """The taps of each output pixel of an axis.

    `positions` and `weights` are `[taps, output]`, for loops along the axis;
    `rows` and `factors` are `[output, taps]`. Weights are those of bytes if
    `shift`, the number of their bits behind the point, is not 0."""

    var input: Int
    var output: Int
    var taps: Int
    var shift: Int
    # Whether the output is the input.
    var kept: Bool
    var counts: Address[DType.int32]
    var positions: Address[DType.int32]
    var weights: Address[Self.dtype]
    var rows: Address[DType.int32]
    var factors: Address[Self.dtype]

    @always_inline
    def start(self) -> Scalar[Self.dtype]:
        """What sums start with: a half, where they are rounded."""
        comptime if Self.dtype == DType.int32:
            return Scalar[Self.dtype](1) << Scalar[Self.dtype](self.shift - 1)
        else:
            return 0

    @always_inline
    def settled[
        width: SIMDLength
    ](self, sum: SIMD[Self.dtype, width]) -> SIMD[Self.dtype, width]:
        """A sum as a pixel."""
        comptime if Self.dtype == DType.int32:
            return (sum >> SIMD[Self.dtype, width](self.shift)).clamp(0, 255)
        else:
            return sum


struct Owner[dtype: DType](Movable):
    """The memory of a table."""

    var numbers: List[Int32]
    var weights: List[Scalar[Self.dtype]]
    var taps: Int
    var input: Int
    var output: Int
    var shift: Int
    var kept: Bool

    def __init__[
        kind: StaticString, floating: DType
    ](out self, axis: Taps[kind, floating]):
        var n = axis.output
        var most = axis.most()
        self.taps = most
        self.input = axis.input
        self.output = n
        self.shift = 0
        self.kept = axis.lifted
        self.numbers = List[Int32](length=n * (1 + 2 * most), fill=0)
        self.weights = List[Scalar[Self.dtype]](
            length=2 * n * most + CHUNK, fill=0
        )
        var exact = List[Scalar[floating]](length=n * most, fill=0)
        for at in range(n):
            var count = axis.count(at)
            self.numbers[at] = Int32(count)
            var total = axis.total(at)
            for k in range(most):
                var position = axis.pixel(at, k)
                self.numbers[n + k * n + at] = Int32(position)
                self.numbers[n + n * most + at * most + k] = Int32(position)
                if k < count:
                    exact[at * most + k] = axis.weight(at, k) / total
        comptime if Self.dtype == DType.int32 and taps_of[kind]() != 1:
            self._round(exact, most)
        else:
            for i in range(n * most):
                self._put(i, exact[i].cast[Self.dtype]())

    def _put(mut self, i: Int, weight: Scalar[Self.dtype]):
        var n = self.output
        var at = i // self.taps
        var k = i % self.taps
        self.weights[k * n + at] = weight
        self.weights[n * self.taps + i] = weight

    def _round[
        floating: DType
    ](mut self, mut exact: List[Scalar[floating]], most: Int):
        """Weights as integers of at most 16 bits, with as many bits behind the
        point as the greatest of them leaves."""
        comptime assert floating.is_floating_point(), "float only"
        var greatest = Scalar[floating](0)
        for at in range(self.output):
            for k in range(most - 1, 0, -1):
                # Taps beyond the border are one with the pixel at the border.
                var here = self.output * (1 + most) + at * most + k
                if (
                    self.numbers[here] == self.numbers[here - 1]
                    and k < Int(self.numbers[at])
                ):
                    exact[at * most + k - 1] += exact[at * most + k]
                    exact[at * most + k] = 0
            for k in range(most):
                greatest = max(greatest, exact[at * most + k])
        while self.shift < 22:
            var next = Scalar[floating](0.5) + greatest * Scalar[floating](
                1 << (self.shift + 1)
            )
            if Int(next) >= 1 << 15:
                break
            self.shift += 1
        for i in range(self.output * most):
            var scaled = exact[i] * Scalar[floating](1 << self.shift)
            var half = Scalar[floating](-0.5 if scaled < 0 else 0.5)
            self._put(i, (scaled + half).cast[Self.dtype]())

    def table(mut self) -> Table[Self.dtype]:
        """The table, as long as this lives."""
        var n = self.output
        var numbers = untracked(self.numbers.unsafe_ptr())
        var weights = untracked(self.weights.unsafe_ptr())
        return Table[Self.dtype](
            self.input,
            n,
            self.taps,
            self.shift,
            self.kept,
            numbers,
            numbers.unsafe_offset(n),
            weights,
            numbers.unsafe_offset(n + n * self.taps),
            weights.unsafe_offset(n * self.taps),
        )


@always_inline
def axes[
    kind: StaticString, floating: DType, bytes: Bool
](
    inputs: Tuple[Int, Int, Int],
    outputs: Tuple[Int, Int, Int],
    scales: Tuple[Float64, Float64, Float64],
    align: Bool,
    planar: Bool,
    spatial: Int,
) -> Tuple[
    Taps[kind, floating], Taps[kind, floating], Taps[kind, floating]
]:
    """The depth, the height and the width."""
    var same = inputs[1] == outputs[1] and inputs[2] == outputs[2]
    # Filters leave an image of the same size as it is, whatever the scale.
    # Bytes of an axis that keeps its size are not rounded.
    var kept = taps_of[kind]() == 0 and same
    return Tuple(
        Taps[kind, floating].of(
            inputs[0], outputs[0], scales[0], align, planar, spatial < 3
        ),
        Taps[kind, floating].of(
            inputs[1],
            outputs[1],
            scales[1],
            align,
            planar,
            spatial < 2 or kept or (bytes and inputs[1] == outputs[1]),
        ),
        Taps[kind, floating].of(
            inputs[2],
            outputs[2],
            scales[2],
            align,
            planar,
            kept or (bytes and inputs[2] == outputs[2]),
        ),
    )
