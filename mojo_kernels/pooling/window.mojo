"""Where the windows of pooling lie."""

from std.math import ceildiv


@fieldwise_init
struct Axis(TrivialRegisterPassable):
    """How windows lie along one axis."""

    var input: Int
    var output: Int
    var kernel: Int
    var stride: Int
    var padding: Int
    var dilation: Int

    @always_inline
    def adaptive(self, at: Int) -> Tuple[Int, Int]:
        """First and end position of an adaptive window."""
        return (
            at * self.input // self.output,
            ceildiv((at + 1) * self.input, self.output),
        )

    @always_inline
    def strided(self, at: Int) -> Tuple[Int, Int]:
        """First and end position of a window, without the padding."""
        var first = at * self.stride - self.padding
        var end = min(first + (self.kernel - 1) * self.dilation + 1, self.input)
        while first < 0:
            first += self.dilation
        return (first, end)

    @always_inline
    def window[adaptive: Bool](self, at: Int) -> Tuple[Int, Int]:
        """First and end position of the window of output `at`."""
        comptime if adaptive:
            return self.adaptive(at)
        else:
            return self.strided(at)

    @always_inline
    def padded_size(self, at: Int) -> Int:
        """Size of the window with the padding it covers."""
        var first = at * self.stride - self.padding
        return min(first + self.kernel, self.input + self.padding) - first


@always_inline
def inner(wide: Axis) -> Tuple[Int, Int]:
    """First and end window of those with all taps inside the image."""
    var first = ceildiv(wide.padding, wide.stride)
    var last = wide.input - 1 + wide.padding - (wide.kernel - 1) * wide.dilation
    var end = 0 if last < 0 else min(wide.output, last // wide.stride + 1)
    return (min(first, end), end)


@always_inline
def is_even(axis: Axis) -> Bool:
    """Whether adaptive windows along an axis have one size and do not overlap."""
    return axis.output > 0 and axis.input % axis.output == 0


@always_inline
def even(axis: Axis) -> Axis:
    """Such adaptive windows as strided ones."""
    var size = axis.input // axis.output
    return {axis.input, axis.output, size, size, 0, 1}
