"""Sliding windows of images `[batch, channels, height, width]` as columns
`[batch, channels * kernel, windows]` and their sums put back."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv

from ..core.lines import each_line


@fieldwise_init
struct Slide(TrivialRegisterPassable):
    """How a window slides along an axis."""

    var size: Int
    var windows: Int
    var kernel: Int
    var stride: Int
    var padding: Int
    var dilation: Int

    @always_inline
    def begin(self, tap: Int) -> Int:
        """Where the first window has a tap; may be outside."""
        return tap * self.dilation - self.padding

    @always_inline
    def inside(self, tap: Int) -> Tuple[Int, Int]:
        """First and end window that has a tap inside the image."""
        var begin = self.begin(tap)
        var first = 0 if begin >= 0 else ceildiv(-begin, self.stride)
        var end = 0
        if begin < self.size:
            end = (self.size - 1 - begin) // self.stride + 1
        end = max(0, min(end, self.windows))
        return (min(first, end), end)


@always_inline
def _slide(
    size: Int,
    kernel: Int64,
    stride: Int64,
    padding: Int64,
    dilation: Int64,
) -> Slide:
    var reach = Int(dilation * (kernel - 1)) + 1
    var windows = (size + 2 * Int(padding) - reach) // Int(stride) + 1
    return Slide(
        size, windows, Int(kernel), Int(stride), Int(padding), Int(dilation)
    )


@register("tmb_im2col")
struct Im2col:
    """Row `(c, i, j)` of the columns holds pixel `(i, j)` of each window of
    channel `c`; pixels of the padding are 0."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        columns: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=4, ...],
        kernel_h: Int64,
        kernel_w: Int64,
        stride_h: Int64,
        stride_w: Int64,
        padding_h: Int64,
        padding_w: Int64,
        dilation_h: Int64,
        dilation_w: Int64,
        ctx: DeviceContext,
    ) raises:
        if columns.size() == 0:
            return
        var high = _slide(
            x.dim_size[2](), kernel_h, stride_h, padding_h, dilation_h
        )
        var wide = _slide(
            x.dim_size[3](), kernel_w, stride_w, padding_w, dilation_w
        )
        var length = columns.dim_size[2]()
        if high.windows * wide.windows != length:
            raise Error("the columns are not of this image")
        var source = x.unsafe_ptr()
        var to = columns.unsafe_ptr()

        @always_inline
        def work(
            line: Int,
        ) {var source, var to, var high, var wide, var length}:
            var taps = high.kernel * wide.kernel
            var plane = source.unsafe_offset(
                line // taps * (high.size * wide.size)
            )
            var tap_h = line % taps // wide.kernel
            var tap_w = line % wide.kernel
            var row = to.unsafe_offset(line * length)
            var rows = high.inside(tap_h)
            var span = wide.inside(tap_w)
            for y in range(high.windows):
                var out_ = row.unsafe_offset(y * wide.windows)
                if y < rows[0] or y >= rows[1]:
                    for x in range(wide.windows):
                        out_[unsafe_offset=x] = 0
                    continue
                var from_ = plane.unsafe_offset(
                    (high.begin(tap_h) + y * high.stride) * wide.size
                )
                for x in range(span[0]):
                    out_[unsafe_offset=x] = 0
                var at = wide.begin(tap_w)
                if wide.stride == 1:
                    for x in range(span[0], span[1]):
                        out_[unsafe_offset=x] = from_[unsafe_offset = at + x]
                else:
                    for x in range(span[0], span[1]):
                        out_[unsafe_offset=x] = from_[
                            unsafe_offset = at + x * wide.stride
                        ]
                for x in range(span[1], wide.windows):
                    out_[unsafe_offset=x] = 0

        each_line[target=target](work, columns.size() // length, length, ctx)


@register("tmb_col2im")
struct Col2im:
    """The sum over windows of their pixels, where they lie."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        result: OutputTensor[dtype=dtype, rank=4, ...],
        columns: InputTensor[dtype=dtype, rank=3, ...],
        kernel_h: Int64,
        kernel_w: Int64,
        stride_h: Int64,
        stride_w: Int64,
        padding_h: Int64,
        padding_w: Int64,
        dilation_h: Int64,
        dilation_w: Int64,
        ctx: DeviceContext,
    ) raises:
        if result.size() == 0:
            return
        var high = _slide(
            result.dim_size[2](), kernel_h, stride_h, padding_h, dilation_h
        )
        var wide = _slide(
            result.dim_size[3](), kernel_w, stride_w, padding_w, dilation_w
        )
        var length = columns.dim_size[2]()
        if high.windows * wide.windows != length:
            raise Error("the columns are not of this image")
        var source = columns.unsafe_ptr()
        var to = result.unsafe_ptr()
        var size = high.size * wide.size
        var taps = high.kernel * wide.kernel

        @always_inline
        def work(
            line: Int,
        ) {
            var source,
            var to,
            var high,
            var wide,
            var length,
            var size,
            var taps,
        }:
            var plane = to.unsafe_offset(line * size)
            for i in range(size):
                plane[unsafe_offset=i] = 0
            for tap in range(taps):
                var tap_h = tap // wide.kernel
                var tap_w = tap % wide.kernel
                var row = source.unsafe_offset((line * taps + tap) * length)
                var rows = high.inside(tap_h)
                var span = wide.inside(tap_w)
                var at = wide.begin(tap_w)
                for y in range(rows[0], rows[1]):
                    var from_ = row.unsafe_offset(y * wide.windows)
                    var out_ = plane.unsafe_offset(
                        (high.begin(tap_h) + y * high.stride) * wide.size
                    )
                    if wide.stride == 1:
                        for x in range(span[0], span[1]):
                            out_[unsafe_offset = at + x] += from_[
                                unsafe_offset=x
                            ]
                    else:
                        for x in range(span[0], span[1]):
                            out_[
                                unsafe_offset = at + x * wide.stride
                            ] += from_[unsafe_offset=x]

        var lines = result.dim_size[0]() * result.dim_size[1]()
        each_line[target=target](work, lines, size + taps * length, ctx)
