"""Convolutions whose groups have one input channel: sums over the taps of planes. Every row that is
read is used for several rows of windows."""

from std.math import ceildiv
from std.sys import simd_width_of
from std.sys.intrinsics import masked_store

from ..core.memory import Address, Untracked, untracked
from ..core.team import in_numbered_ranges
from ..core.vectors import below
from ..gemm.blas import tasks_for
from .finish import Finish
from .planes import MASKED, Layout, Shape, Window, phase_planes

# Rows of windows whose sums are in registers together.
comptime ROWS = 4
# Windows of the rows that are done while they are in the first-level cache.
comptime BLOCK = 4096


@always_inline
def _store[
    dtype: DType, width: SIMDLength, //
](to: Address[dtype], v: SIMD[dtype, width], count: Int):
    """The first `count` numbers of a vector."""
    if count >= Int(width):
        to.unsafe_store(0, v)
        return
    comptime if MASKED:
        masked_store(v, to, below[Int(width)](count))
    else:
        for j in range(count):
            to[unsafe_offset=j] = v[j]


@no_inline
def _square[
    dtype: DType, //, kernel: Int, stride: Int, rows: Int
](
    to: Address[dtype],
    planes: Address[dtype],
    size: Int,
    extent: Int,
    weight: Address[dtype],
    count: Int,
    output: Int,
):
    """`count` rows of `output` windows, at least `rows`."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, width]
    var factors = Array[Some, kernel * kernel](fill=Some(0))
    comptime for tap in range(kernel * kernel):
        factors[tap] = Some(weight[unsafe_offset=tap])
    for begun in range(0, count, rows):
        # The last rows overlap those before them.
        var y = min(begun, count - rows)
        for x in range(0, output, width):
            var sums = Array[Some, rows](fill=Some(0))
            var place = planes.unsafe_offset(y * extent + x)
            comptime for r in range((rows - 1) * stride + kernel):
                comptime for tap_x in range(kernel):
                    comptime phase = r % stride * stride + tap_x % stride
                    var v = place.unsafe_load[width=width](
                        phase * size + r // stride * extent + tap_x // stride
                    )
                    comptime for i in range(rows):
                        comptime tap_y = r - i * stride
                        comptime if tap_y >= 0 and tap_y < kernel:
                            sums[i] = v.fma(factors[tap_y * kernel + tap_x], sums[i])
            comptime for i in range(rows):
                _store(to.unsafe_offset((y + i) * output + x), sums[i], output - x)


@no_inline
def _listed[
    dtype: DType
](
    to: Address[dtype],
    planes: Address[dtype],
    begins: Pointer[Int, Untracked],
    extent: Int,
    weight: Address[dtype],
    taps: Int,
    count: Int,
    output: Int,
):
    """`count` rows of `output` windows whose taps begin at `begins`."""
    comptime width = simd_width_of[dtype]()
    comptime Some = SIMD[dtype, width]
    for y in range(count):
        var x = 0
        while x < output:
            var place = planes.unsafe_offset(y * extent + x)
            var line = to.unsafe_offset(y * output + x)
            if output - x > width:
                var sums = Array[Some, ROWS](fill=Some(0))
                for tap in range(taps):
                    var from_ = place.unsafe_offset(begins[unsafe_offset=tap])
                    var factor = Some(weight[unsafe_offset=tap])
                    comptime for s in range(ROWS):
                        sums[s] = from_.unsafe_load[width=width](s * width).fma(
                            factor, sums[s]
                        )
                comptime for s in range(ROWS):
                    if output - x > s * width:
                        _store(line.unsafe_offset(s * width), sums[s], output - x - s * width)
                x += ROWS * width
            else:
                var sum = Some(0)
                for tap in range(taps):
                    var from_ = place.unsafe_offset(begins[unsafe_offset=tap])
                    var factor = Some(weight[unsafe_offset=tap])
                    sum = from_.unsafe_load[width=width](0).fma(factor, sum)
                _store(line, sum, output - x)
                x += width


@always_inline
def _rows[
    dtype: DType
](
    to: Address[dtype],
    planes: Address[dtype],
    size: Int,
    begins: Pointer[Int, Untracked],
    extent: Int,
    weight: Address[dtype],
    high: Window,
    wide: Window,
    count: Int,
):
    var square = high.kernel == wide.kernel and high.stride == wide.stride
    square = square and high.dilation == 1 and wide.dilation == 1
    comptime for kernel in range(3, 8, 2):
        comptime for stride in range(1, 3):
            if square and kernel == high.kernel and stride == high.stride:
                if count >= ROWS:
                    _square[kernel, stride, ROWS](
                        to, planes, size, extent, weight, count, wide.output
                    )
                else:
                    _square[kernel, stride, 1](
                        to, planes, size, extent, weight, count, wide.output
                    )
                return
    var taps = high.kernel * wide.kernel
    _listed(to, planes, begins, extent, weight, taps, count, wide.output)


def convolve_single_channels[
    dtype: DType, //
](
    op: Address[dtype],
    xp: Address[dtype],
    wp: Address[dtype],
    shape: Shape,
    finish: Finish[dtype],
):
    """A convolution with `shape.channels() == 1`."""
    comptime width = simd_width_of[dtype]()
    var high = shape.high
    var wide = shape.wide
    var layout = Layout(wide, False)
    var extent = layout.extent()
    var planes = shape.batch * shape.outputs
    var tasks = tasks_for(planes, shape.cost() * 4)
    var blocks = max(1, high.output * extent // BLOCK)
    var block = max(min(ROWS, high.output), ceildiv(high.output, blocks))
    var most_rows = block + high.step(high.kernel - 1)
    # Vectors are read past the last window of a row.
    var size = most_rows * extent + layout.step(wide.kernel - 1) + (ROWS + 1) * width
    var begins = List[Int](capacity=shape.taps())
    for tap_y in range(high.kernel):
        for tap_x in range(wide.kernel):
            var place = high.phase(tap_y) * layout.planes() + layout.plane(tap_x)
            begins.append(place * size + high.step(tap_y) * extent + layout.step(tap_x))
    var begin = untracked(begins.unsafe_ptr())
    var space = high.stride * layout.planes() * size
    var images = List[Scalar[dtype]](unsafe_uninit_length=tasks * space)
    var ip = untracked(images.unsafe_ptr())

    def work(task: Int, lower: Int, upper: Int) {
        var op, var xp, var wp, var ip, var shape, var finish, var high, var wide, var layout,
        var extent, var block, var size, var begin, var space
    }:
        var image = ip.unsafe_offset(task * space)
        var last = -1
        for at in range(lower, upper):
            var channel = at % shape.outputs
            var source = at // shape.outputs * shape.inputs + channel // shape.per_group()
            var y = 0
            while y < high.output:
                var count = min(block, high.output - y)
                if source != last or block < high.output:
                    phase_planes(
                        image,
                        size,
                        xp.unsafe_offset(source * shape.plane()),
                        high,
                        layout,
                        y,
                        count + high.step(high.kernel - 1),
                    )
                    last = source
                var position = at * shape.pixels() + y * wide.output
                var to = op.unsafe_offset(position)
                var weight = wp.unsafe_offset(channel * shape.taps())
                _rows(to, image, size, begin, extent, weight, high, wide, count)
                if not finish.idle():
                    finish.apply(to, to, channel, position, count * wide.output)
                y += count

    in_numbered_ranges(work, planes, tasks)
    _ = images^
    _ = begins^
