"""Convolution of channels-first images as a matrix product: windows become the
columns of a matrix, a tile of pixels at a time, in the panels of `panels.mojo`
or, for a routine of a library, in rows. What follows a convolution in a network
(a bias, a batch norm of known statistics, a sum, an activation) is done to a tile while
it is in the cache."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, sqrt
from std.sys import simd_width_of

from .blas import Gemm, activated, tasks_for
from .panels import DEPTH, WIDE, Address, Matrix, left_size, packed_product
from .team import sync_parallelize

# Elements of a tile of columns: half of a second-level cache.
comptime TILE = 131072
# Vectors of a row that a convolution of single channels sums up at a time.
comptime STRIP = 4


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
    def plane(self, tap: Int) -> Int:
        return tap if self.taps else self.wide.phase(tap)

    @always_inline
    def step(self, tap: Int) -> Int:
        """Where a tap's first number is in a row of its plane."""
        return 0 if self.taps else self.wide.step(tap)


@always_inline
def _copy[
    dtype: DType
](to: Address[dtype], source: Address[dtype], stride: Int, count: Int, inside: Bool):
    """`count` numbers that lie `stride` apart, or zeros."""
    comptime width = simd_width_of[dtype]()
    if not inside or stride == 1:
        var i = 0
        comptime for part in range(3):
            # Vectors, then a half and a quarter of one.
            comptime some = max(width >> part, 1)
            while i + some <= count:
                var v = SIMD[dtype, some](0)
                if inside:
                    v = source.unsafe_load[width=some](i)
                to.unsafe_store[width=some](i, v)
                i += some
        while i < count:
            to[unsafe_offset=i] = source[unsafe_offset=i] if inside else 0
            i += 1
        return
    var i = 0
    if stride == 2:
        # The last number that a pair of vectors reads belongs to no window.
        while i + width < count:
            var both = source.unsafe_load[width = 2 * width](2 * i)
            to.unsafe_store(i, both.deinterleave()[0])
            i += width
    while i < count:
        to[unsafe_offset=i] = source[unsafe_offset = i * stride]
        i += 1


@always_inline
def _phases[
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
    `size` for each start: rows `first` to `first + rows`."""
    var extent = layout.extent()
    var wide = layout.wide
    for phase_y in range(high.stride):
        if not high.uses(phase_y):
            continue
        for at in range(layout.planes()):
            if not layout.uses(at):
                continue
            var before = -layout.first(at)
            var left = 0 if before <= 0 else ceildiv(before, wide.stride)
            var after = wide.input - 1 + before
            var right = 0 if after < 0 else after // wide.stride + 1
            left = min(left, extent)
            right = max(left, min(right, extent))
            var plane = to.unsafe_offset((phase_y * layout.planes() + at) * size)
            for row in range(rows):
                var line = plane.unsafe_offset(row * extent)
                var y = (first + row) * high.stride + phase_y - high.padding
                if y < 0 or y >= high.input:
                    _copy(line, image, 1, extent, False)
                    continue
                var source = image.unsafe_offset(y * wide.input - before)
                _copy(line, image, 1, left, False)
                _copy(
                    line.unsafe_offset(left),
                    source.unsafe_offset(left * wide.stride),
                    wide.stride,
                    right - left,
                    True,
                )
                _copy(line.unsafe_offset(right), image, 1, extent - right, False)


@fieldwise_init
struct Finish[dtype: DType, activation: StaticString](TrivialRegisterPassable):
    """What is done to the sums: `(v + bias) scale + shift + residual`, activated."""

    var bias: Int
    var weight: Int
    var offset: Int
    var mean: Int
    var variance: Int
    var epsilon: Scalar[Self.dtype]
    var residual: Int

    @always_inline
    def _value(self, address: Int, channel: Int) -> Scalar[Self.dtype]:
        var place = address
        return Pointer(to=place).unsafe_bitcast[Address[Self.dtype]]()[][
            unsafe_offset=channel
        ]

    @always_inline
    def idle(self) -> Bool:
        """Whether the sums are the result."""
        return (
            self.bias == 0
            and self.variance == 0
            and self.residual == 0
            and Self.activation == "none"
        )

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
        var scale = Scalar[Self.dtype](1)
        var shift = Scalar[Self.dtype](0)
        if self.bias != 0:
            shift = self._value(self.bias, channel)
        if self.variance != 0:
            scale = 1 / sqrt(self._value(self.variance, channel) + self.epsilon)
            if self.weight != 0:
                scale *= self._value(self.weight, channel)
            shift = (shift - self._value(self.mean, channel)) * scale
            if self.offset != 0:
                shift += self._value(self.offset, channel)
        var address = self.residual
        var other = Pointer(to=address).unsafe_bitcast[Address[Self.dtype]]()[]
        other = other.unsafe_offset(position)
        var i = 0
        while i + width <= count:
            var v = line.unsafe_load[width=width](i).fma(
                SIMD[Self.dtype, width](scale), SIMD[Self.dtype, width](shift)
            )
            if self.residual != 0:
                v += other.unsafe_load[width=width](i)
            to.unsafe_store[width=width](i, activated[Self.activation](v))
            i += width
        while i < count:
            var v = line[unsafe_offset=i].fma(scale, shift)
            if self.residual != 0:
                v += other[unsafe_offset=i]
            to[unsafe_offset=i] = activated[Self.activation](v)
            i += 1


@always_inline
def _padded_plane[
    dtype: DType
](to: Address[dtype], image: Address[dtype], high: Window, wide: Window, row: Int):
    """An image with the zeros around it that windows reach into."""
    var reach = wide.reach()
    for y in range(high.reach()):
        var line = to.unsafe_offset(y * row)
        var source = y - high.padding
        var first = 0
        var last = 0
        if source >= 0 and source < high.input:
            first = min(wide.padding, reach)
            last = min(wide.padding + wide.input, reach)
        var start = image.unsafe_offset(source * wide.input - wide.padding)
        _copy(line, start, 1, first, False)
        _copy(
            line.unsafe_offset(first), start.unsafe_offset(first), 1, last - first, True
        )
        _copy(line.unsafe_offset(last), start, 1, reach - last, False)


@always_inline
def _strip[
    dtype: DType, //, vectors: Int
](
    to: Address[dtype],
    source: Address[dtype],
    row: Int,
    weight: Address[dtype],
    high: Window,
    wide: Window,
    count: Int,
):
    """`count` neighbouring windows, `vectors` vectors at most."""
    comptime width = simd_width_of[dtype]()
    var sums = Array[SIMD[dtype, width], vectors](fill=SIMD[dtype, width](0))
    var factors = weight
    for tap_y in range(high.kernel):
        var line = source.unsafe_offset(tap_y * high.dilation * row)
        for tap_x in range(wide.kernel):
            var factor = SIMD[dtype, width](factors[unsafe_offset=tap_x])
            var at = line.unsafe_offset(tap_x * wide.dilation)
            comptime for s in range(vectors):
                sums[s] = at.unsafe_load[width=width](s * width).fma(factor, sums[s])
        factors = factors.unsafe_offset(wide.kernel)
    comptime for s in range(vectors):
        if (s + 1) * width <= count:
            to.unsafe_store[width=width](s * width, sums[s])
        else:
            for j in range(count - s * width):
                to[unsafe_offset = s * width + j] = sums[s][j]


@always_inline
def _single_channel[
    dtype: DType
](
    to: Address[dtype],
    image: Address[dtype],
    row: Int,
    weight: Address[dtype],
    high: Window,
    wide: Window,
):
    """One plane of a convolution whose groups have one input channel, of a
    padded image."""
    comptime width = simd_width_of[dtype]()
    for y in range(high.output):
        var line = to.unsafe_offset(y * wide.output)
        var top = image.unsafe_offset(y * high.stride * row)
        var x = 0
        if wide.stride == 1:
            while x < wide.output:
                var count = wide.output - x
                var place = line.unsafe_offset(x)
                var source = top.unsafe_offset(x)
                if count > 2 * width:
                    _strip[STRIP](place, source, row, weight, high, wide, count)
                    x += STRIP * width
                elif count > width:
                    _strip[2](place, source, row, weight, high, wide, count)
                    x += 2 * width
                else:
                    _strip[1](place, source, row, weight, high, wide, count)
                    x += width
            continue
        while x < wide.output:
            var total = Scalar[dtype](0)
            for tap_y in range(high.kernel):
                var source = top.unsafe_offset(
                    tap_y * high.dilation * row + x * wide.stride
                )
                for tap_x in range(wide.kernel):
                    total += (
                        source[unsafe_offset = tap_x * wide.dilation]
                        * weight[unsafe_offset = tap_y * wide.kernel + tap_x]
                    )
            line[unsafe_offset=x] = total
            x += 1


@always_inline
def _address[dtype: DType](tensor: InputTensor[dtype=dtype, rank=1, ...]) -> Int:
    """0 for a tensor without elements, which stands for none."""
    return Int(tensor.unsafe_ptr()) if tensor.dim_size[0]() != 0 else 0


@register("tmb_convolution")
struct Convolution:
    """`[batch, channels, height, width]` with weights
    `[outputs, channels / groups, height, width]`, and what follows; an empty
    tensor stands for one that is left out."""

    @staticmethod
    def execute[
        dtype: DType, //, activation: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        weight: InputTensor[dtype=dtype, rank=4, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        norm_weight: InputTensor[dtype=dtype, rank=1, ...],
        norm_bias: InputTensor[dtype=dtype, rank=1, ...],
        mean: InputTensor[dtype=dtype, rank=1, ...],
        variance: InputTensor[dtype=dtype, rank=1, ...],
        residual: InputTensor[dtype=dtype, rank=4, ...],
        routine: Int64,
        set_threads: Int64,
        stride_y: Int64,
        stride_x: Int64,
        padding_y: Int64,
        padding_x: Int64,
        dilation_y: Int64,
        dilation_x: Int64,
        groups: Int64,
        epsilon: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own convolution"
        comptime assert dtype.is_floating_point(), "float only"
        comptime width = simd_width_of[dtype]()
        comptime panel = WIDE * width
        var gemm = Gemm(Int(routine), Int(set_threads))
        var high = Window(
            x.dim_size[2](),
            output.dim_size[2](),
            weight.dim_size[2](),
            Int(stride_y),
            Int(padding_y),
            Int(dilation_y),
        )
        var wide = Window(
            x.dim_size[3](),
            output.dim_size[3](),
            weight.dim_size[3](),
            Int(stride_x),
            Int(padding_x),
            Int(dilation_x),
        )
        var finish = Finish[dtype, activation](
            _address(bias),
            _address(norm_weight),
            _address(norm_bias),
            _address(mean),
            _address(variance),
            epsilon.cast[dtype](),
            Int(residual.unsafe_ptr()) if residual.dim_size[0]() != 0 else 0,
        )
        var batch = output.dim_size[0]()
        var outputs = output.dim_size[1]()
        var inputs = x.dim_size[1]()
        var parts = Int(groups)
        var channels = weight.dim_size[1]()
        var per_group = outputs // parts
        var pixels = high.output * wide.output
        var plane = high.input * wide.input
        var taps = high.kernel * wide.kernel
        var depth = channels * taps
        if batch * outputs * pixels == 0:
            return
        var xp = x.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var wp = weight.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var op = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var cost = batch * outputs * pixels * depth

        if channels == 1:
            var planes = batch * outputs
            var tasks = tasks_for(planes, cost * 4)
            var chunk = ceildiv(planes, tasks)
            # Strips read past the last window of a row.
            var row = wide.reach() + STRIP * width
            var size = high.reach() * row
            var images = List[Scalar[dtype]](
                unsafe_uninit_length=tasks * size + STRIP * width
            )
            var ip = images.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()

            def single(
                task: Int,
            ) {
                var xp,
                var wp,
                var ip,
                var op,
                var finish,
                var planes,
                var chunk,
                var outputs,
                var inputs,
                var per_group,
                var high,
                var wide,
                var row,
                var size,
                var pixels,
                var plane,
                var taps,
            }:
                var image = ip.unsafe_offset(task * size)
                var last = -1
                for at in range(task * chunk, min(planes, (task + 1) * chunk)):
                    var item = at // outputs
                    var channel = at % outputs
                    var source = item * inputs + channel // per_group
                    if source != last:
                        _padded_plane(
                            image, xp.unsafe_offset(source * plane), high, wide, row
                        )
                        last = source
                    var to = op.unsafe_offset(at * pixels)
                    _single_channel(
                        to, image, row, wp.unsafe_offset(channel * taps), high, wide
                    )
                    if not finish.idle():
                        finish.apply(to, to, channel, at * pixels, pixels)

            sync_parallelize(single, tasks)
            _ = images^
            return

        var own = gemm.routine == 0
        # A tap's numbers have to be neighbours: either windows are counted with the
        # positions between two rows of them, which costs products, or each tap has a
        # plane of its own, which costs copies.
        var layout = Layout(wide, 2 * (wide.extent() - wide.output) >= wide.output)
        var extent = layout.extent()
        var windows = high.output * extent
        var dense = extent == wide.output
        # Then the image itself holds them.
        var plain = (
            taps * high.stride * wide.stride == 1
            and high.padding + wide.padding == 0
            and wide.output == wide.input
        )
        # Whole channels at a time; a library's routine takes all at once.
        var block = max(1, DEPTH // taps) if own else channels
        block = min(block, channels)
        var tasks = tasks_for(batch * outputs * pixels, cost)
        var tile = max(64, TILE // (block * taps)) // panel * panel
        # As many tiles for each task, but none that starves the product.
        var tiles = ceildiv(windows, tile)
        while batch * parts * tiles % tasks != 0 and windows // (tiles + 1) >= 64:
            tiles += 1
        tile = ceildiv(ceildiv(windows, tiles), panel) * panel
        tiles = ceildiv(windows, tile)
        var cuts = max(1, min(tasks // (batch * parts * tiles), per_group // 16))
        var slab = ceildiv(per_group, cuts)
        var units = batch * parts * cuts * tiles
        tasks = min(tasks, units)
        var chunk = ceildiv(units, tasks)

        # Where each tap's numbers begin in the planes of a channel.
        var most_rows = min(ceildiv(tile, extent) + 1, high.output) + high.step(
            high.kernel - 1
        )
        var size = most_rows * extent + layout.step(wide.kernel - 1) + panel
        var planes = size * high.stride * layout.planes()
        var begins = List[Int](capacity=taps)
        for tap_y in range(high.kernel):
            for tap_x in range(wide.kernel):
                var place = high.phase(tap_y) * layout.planes() + layout.plane(tap_x)
                var at = high.step(tap_y) * extent + layout.step(tap_x)
                begins.append(place * size + at)
        var begin = begins.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var columns_size = tile * block * taps + panel
        var left_space = left_size(slab, block * taps) + panel
        var sums_size = 0 if dense else slab * tile
        var planes_size = 0 if plain else block * planes
        var space = columns_size + left_space + sums_size + planes_size
        var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * space)
        var sp = scratch.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()

        def work(
            task: Int,
        ) {
            var gemm,
            var xp,
            var wp,
            var op,
            var sp,
            var begin,
            var space,
            var columns_size,
            var left_space,
            var sums_size,
            var own,
            var dense,
            var plain,
            var finish,
            var units,
            var chunk,
            var tile,
            var tiles,
            var cuts,
            var slab,
            var block,
            var parts,
            var outputs,
            var inputs,
            var channels,
            var per_group,
            var high,
            var wide,
            var layout,
            var extent,
            var windows,
            var size,
            var planes,
            var pixels,
            var plane,
            var taps,
            var depth,
        }:
            var previous = gemm.begin()
            var columns = sp.unsafe_offset(task * space)
            var left = columns.unsafe_offset(columns_size)
            var sums = left.unsafe_offset(left_space)
            var images = sums.unsafe_offset(sums_size)
            for unit in range(task * chunk, min(units, (task + 1) * chunk)):
                var item = unit // (parts * cuts * tiles)
                var group = unit // (cuts * tiles) % parts
                var cut = unit // tiles % cuts
                var start = unit % tiles * tile
                var count = min(windows - start, tile)
                var first = group * per_group + cut * slab
                var rows = min(slab, per_group - cut * slab)
                if rows <= 0:
                    continue
                var source = xp.unsafe_offset((item * inputs + group * channels) * plane)
                var result = op.unsafe_offset((item * outputs + first) * pixels)
                var to = result.unsafe_offset(start) if dense else sums
                var row = pixels if dense else tile
                var top = start // extent
                var bottom = (start + count - 1) // extent + high.step(high.kernel - 1)
                for begun in range(0, channels, block):
                    var some = min(block, channels - begun)
                    var steps = some * taps
                    var from_ = source.unsafe_offset(begun * plane)
                    if not plain:
                        for channel in range(some):
                            _phases(
                                images.unsafe_offset(channel * planes),
                                size,
                                from_.unsafe_offset(channel * plane),
                                high,
                                layout,
                                top,
                                bottom - top + 1,
                            )
                    var line = panel if own else count
                    for at in range(0, count, line):
                        var place = columns.unsafe_offset(at * steps)
                        var wanted = min(line, count - at)
                        for channel in range(some):
                            var base = images.unsafe_offset(
                                channel * planes + start + at - top * extent
                            )
                            if plain:
                                base = from_.unsafe_offset(channel * plane + start + at)
                            for tap in range(taps):
                                var numbers = base.unsafe_offset(
                                    begin[unsafe_offset=tap]
                                )
                                if own and (wanted == panel or not plain):
                                    comptime for v in range(WIDE):
                                        place.unsafe_store[width=width](
                                            v * width,
                                            numbers.unsafe_load[width=width](v * width),
                                        )
                                else:
                                    _copy(place, numbers, 1, wanted, True)
                                place = place.unsafe_offset(line)
                    var weights = wp.unsafe_offset(first * depth + begun * taps)
                    if own:
                        packed_product(
                            rows,
                            count,
                            steps,
                            Matrix(weights, depth, 1),
                            left,
                            columns,
                            to,
                            row,
                            begun != 0,
                        )
                    else:
                        gemm.multiply(
                            rows,
                            count,
                            depth,
                            weights,
                            depth,
                            False,
                            columns,
                            count,
                            False,
                            to,
                            row,
                        )
                if dense and finish.idle():
                    continue
                for i in range(rows):
                    var at = start
                    while at < start + count:
                        var y = at // extent
                        var x = at - y * extent
                        # To the end of a row; of all that there is, if rows touch.
                        var until = start + count
                        if not dense:
                            until = min(until, y * extent + wide.output)
                        var position = y * wide.output + x
                        if until > at:
                            finish.apply(
                                result.unsafe_offset(i * pixels + position),
                                to.unsafe_offset(i * row + at - start),
                                first + i,
                                (item * outputs + first + i) * pixels + position,
                                until - at,
                            )
                        at = until if dense else (y + 1) * extent
            gemm.end(previous)

        sync_parallelize(work, tasks)
        _ = scratch^
        _ = begins^
