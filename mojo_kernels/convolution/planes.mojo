"""Where the windows of a convolution lie, and images copied so that what one tap meets in
neighbouring windows are neighbours in memory."""

from std.math import ceildiv
from std.sys import CompilationTarget, simd_width_of
from std.sys.intrinsics import masked_load

from ..core.memory import Address
from ..core.vectors import below, copy_line

# Whether a part of a vector costs no more than a whole one.
comptime MASKED = CompilationTarget.has_avx512f()


@fieldwise_init
struct Window(TrivialRegisterPassable):
    """How windows lie along one axis."""

    var input: Int
    var output: Int
    var kernel: Int
    var stride: Int
    var padding: Int
    var dilation: Int

    @always_inline
    def first(self, tap: Int) -> Int:
        """Input position of a tap of the first window, maybe outside."""
        return tap * self.dilation - self.padding

    @always_inline
    def reach(self) -> Int:
        """Positions from the first tap of the first window to the last of the
        last, those outside the image among them."""
        return (self.output - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    @always_inline
    def phase(self, tap: Int) -> Int:
        """Where between two windows a tap lies."""
        return tap * self.dilation % self.stride

    @always_inline
    def step(self, tap: Int) -> Int:
        """How many windows on a tap lies."""
        return tap * self.dilation // self.stride

    @always_inline
    def extent(self) -> Int:
        """Positions of one phase that windows reach."""
        return self.output + self.step(self.kernel - 1)

    @always_inline
    def uses(self, phase: Int) -> Bool:
        """Whether a tap lies there."""
        for tap in range(self.kernel):
            if self.phase(tap) == phase:
                return True
        return False


struct Shape(TrivialRegisterPassable):
    """The sizes of a convolution. One of volumes is one of images: a slice of the result is an item
    of `batch`, and `inputs` are the slices that its windows reach, those of a channel side by
    side."""

    var batch: Int
    var inputs: Int
    var outputs: Int
    var groups: Int
    var high: Window
    var wide: Window
    var deep: Window

    @always_inline
    def __init__(
        out self,
        batch: Int,
        inputs: Int,
        outputs: Int,
        groups: Int,
        high: Window,
        wide: Window,
        deep: Window = Window(1, 1, 1, 1, 0, 1),
    ):
        self.batch = batch * deep.output
        self.inputs = inputs * deep.kernel
        self.outputs = outputs
        self.groups = groups
        self.high = high
        self.wide = wide
        self.deep = deep

    @always_inline
    def slice(self, item: Int, input: Int) -> Int:
        """Where an input of an item begins, negative for zeros."""
        var z = item % self.deep.output * self.deep.stride
        z += self.deep.first(input % self.deep.kernel)
        if z < 0 or z >= self.deep.input:
            return -1
        var volume = item // self.deep.output * (self.inputs // self.deep.kernel)
        volume += input // self.deep.kernel
        return (volume * self.deep.input + z) * self.plane()

    @always_inline
    def place(self, item: Int, output: Int) -> Int:
        """Where an output of an item begins."""
        var volume = item // self.deep.output * self.outputs + output
        return (volume * self.deep.output + item % self.deep.output) * self.pixels()

    @always_inline
    def apart(self) -> Int:
        """Numbers from one output of an item to the next."""
        return self.pixels() * self.deep.output

    @always_inline
    def channels(self) -> Int:
        """Input channels of a group."""
        return self.inputs // self.groups

    @always_inline
    def per_group(self) -> Int:
        """Output channels of a group."""
        return self.outputs // self.groups

    @always_inline
    def pixels(self) -> Int:
        """Numbers of an output channel."""
        return self.high.output * self.wide.output

    @always_inline
    def plane(self) -> Int:
        """Numbers of an input channel."""
        return self.high.input * self.wide.input

    @always_inline
    def taps(self) -> Int:
        return self.high.kernel * self.wide.kernel

    @always_inline
    def depth(self) -> Int:
        """Numbers that are multiplied for one of the output."""
        return self.channels() * self.taps()

    @always_inline
    def cost(self) -> Int:
        """Multiplications."""
        return self.batch * self.outputs * self.pixels() * self.depth()


@fieldwise_init
struct Layout(TrivialRegisterPassable):
    """How the rows of an image lie in memory, once for each phase of the windows or,
    for `taps`, once for each tap: then no positions lie between two rows of windows."""

    var wide: Window
    var taps: Bool

    @always_inline
    def planes(self) -> Int:
        return self.wide.kernel if self.taps else self.wide.stride

    @always_inline
    def extent(self) -> Int:
        """Numbers of a row."""
        return self.wide.output if self.taps else self.wide.extent()

    @always_inline
    def uses(self, plane: Int) -> Bool:
        return self.taps or self.wide.uses(plane)

    @always_inline
    def first(self, plane: Int) -> Int:
        """Input position of a plane's first number, maybe outside."""
        return (plane * self.wide.dilation if self.taps else plane) - self.wide.padding

    @always_inline
    def inside(self, plane: Int) -> Tuple[Int, Int]:
        """Which numbers of a plane's rows lie inside the image."""
        var extent = self.extent()
        var before = -self.first(plane)
        var left = 0 if before <= 0 else ceildiv(before, self.wide.stride)
        var after = self.wide.input - 1 + before
        var right = 0 if after < 0 else after // self.wide.stride + 1
        left = min(left, extent)
        return (left, max(left, min(right, extent)))

    @always_inline
    def plane(self, tap: Int) -> Int:
        return tap if self.taps else self.wide.phase(tap)

    @always_inline
    def step(self, tap: Int) -> Int:
        """Where a tap's first number is in a row of its plane."""
        return 0 if self.taps else self.wide.step(tap)


@always_inline
def _pad_line[
    dtype: DType
](to: Address[dtype], source: Address[dtype], stride: Int, left: Int, right: Int, extent: Int):
    """Numbers `left` to `right` of a line of `extent`, zeros around them. Writes up to a vector
    past the end."""
    comptime width = simd_width_of[dtype]()
    for i in range(0, left, width):
        to.unsafe_store(i, SIMD[dtype, width](0))
    var count = right - left
    comptime if MASKED:
        if 0 < count <= width and stride <= 2:
            var some = SIMD[dtype, width](0)
            var from_ = source.unsafe_offset(left * stride)
            if stride == 1:
                some = masked_load[width](from_, below[width](count), some)
            else:
                var low = masked_load[width](from_, below[width](2 * count - 1), some)
                var rest = below[width](2 * count - 1 - width)
                var high = masked_load[width](from_.unsafe_offset(width), rest, some)
                some = rebind[SIMD[dtype, width]](low.join(high).deinterleave()[0])
            to.unsafe_store(left, some)
            for i in range(left + width, extent, width):
                to.unsafe_store(i, SIMD[dtype, width](0))
            return
    copy_line(to.unsafe_offset(left), source.unsafe_offset(left * stride), stride, count)
    for i in range(right, extent, width):
        to.unsafe_store(i, SIMD[dtype, width](0))


@always_inline
def phase_planes[
    dtype: DType
](
    to: Address[dtype],
    size: Int,
    image: Address[dtype],
    high: Window,
    layout: Layout,
    first: Int,
    rows: Int,
):
    """Every `stride`-th number of an image with the zeros around it, a plane of
    `size` for each start: rows `first` to `first + rows`. Writes up to a vector past the last."""
    var extent = layout.extent()
    var wide = layout.wide
    for phase_y in range(high.stride):
        if not high.uses(phase_y):
            continue
        for at in range(layout.planes()):
            if not layout.uses(at):
                continue
            var ends = layout.inside(at)
            var left = ends[0]
            var right = ends[1]
            var before = -layout.first(at)
            var plane = to.unsafe_offset((phase_y * layout.planes() + at) * size)
            for row in range(rows):
                var line = plane.unsafe_offset(row * extent)
                var y = (first + row) * high.stride + phase_y - high.padding
                if y < 0 or y >= high.input:
                    _pad_line(line, image, 1, extent, extent, extent)
                else:
                    var source = image.unsafe_offset(y * wide.input - before)
                    _pad_line(line, source, wide.stride, left, right, extent)
