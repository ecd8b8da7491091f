"""The gradient of resizing images `[batch, channels, depth, height, width]`."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.memory import unsafe_memset_zero
from std.sys import simd_width_of

from ..core.each import foreach
from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, task_count
from .resample_rows import GRAIN
from .resample_table import Owner, Table, axes
from .taps import Taps


struct Users[dtype: DType](Movable):
    """For each pixel of an axis of the input, the outputs that take it: those of
    pixel `i` are entries `starts[i]` to `starts[i + 1]`."""

    var starts: List[Int]
    var outputs: List[Int32]
    var weights: List[Scalar[Self.dtype]]

    def __init__(out self, table: Table[Self.dtype]):
        self.starts = List[Int](length=table.input + 1, fill=0)
        var entries = 0
        for at in range(table.output):
            for k in range(Int(table.counts[unsafe_offset=at])):
                var pixel = Int(
                    table.rows[unsafe_offset = at * table.taps + k]
                )
                self.starts[pixel + 1] += 1
                entries += 1
        for i in range(table.input):
            self.starts[i + 1] += self.starts[i]
        self.outputs = List[Int32](length=entries, fill=0)
        self.weights = List[Scalar[Self.dtype]](length=entries, fill=0)
        var next = self.starts.copy()
        for at in range(table.output):
            for k in range(Int(table.counts[unsafe_offset=at])):
                var i = at * table.taps + k
                var pixel = Int(table.rows[unsafe_offset=i])
                self.outputs[next[pixel]] = Int32(at)
                self.weights[next[pixel]] = table.factors[unsafe_offset=i]
                next[pixel] += 1


@always_inline
def _add[
    dtype: DType
](
    to: Address[dtype],
    from_: Address[dtype],
    factor: Scalar[dtype],
    size: Int,
):
    """Adds `factor` times `from_`."""
    comptime width = simd_width_of[dtype]()
    var j = 0
    while j + width <= size:
        var value = from_.unsafe_load[width=width](j)
        to.unsafe_store[width=width](
            j, value.fma(factor, to.unsafe_load[width=width](j))
        )
        j += width
    while j < size:
        to[unsafe_offset=j] = from_[unsafe_offset=j].fma(
            factor, to[unsafe_offset=j]
        )
        j += 1


def _resize_backward[
    dtype: DType, //
](
    source: Address[dtype],
    result: Address[dtype],
    planes: Int,
    deep: Table[dtype],
    high: Table[dtype],
    wide: Table[dtype],
):
    """The gradient of whole planes, a thread each: sums are in one order always."""
    var area = high.input * wide.input
    var outer = high.output * wide.output
    var rows = high.input * wide.output
    var volume = deep.input * area
    var cost = planes * max(volume, deep.output * outer) * high.taps
    var tasks = task_count(planes, cost, GRAIN)
    var users = Users[dtype](wide)
    var begins = untracked(users.starts.unsafe_ptr())
    var ends = untracked(users.outputs.unsafe_ptr())
    var weights = untracked(users.weights.unsafe_ptr())
    var scratch = List[Scalar[dtype]](
        unsafe_uninit_length=tasks * (rows + area)
    )
    var sp = untracked(scratch.unsafe_ptr())

    def work(task: Int, lower: Int, upper: Int) {
        var source, var result, var deep, var high, var wide, var area, var outer, var rows,
        var volume, var begins, var ends, var weights, var sp
    }:
        var sums = sp.unsafe_offset(task * (rows + area))
        var slice = sums.unsafe_offset(rows)
        for plane in range(lower, upper):
            var gradient = result.unsafe_offset(plane * volume)
            # With one slice, sums go to where they belong at once.
            var single = deep.kept
            if not single:
                unsafe_memset_zero(gradient, count=volume)
            for z in range(deep.output):
                var from_ = source.unsafe_offset(
                    (plane * deep.output + z) * outer
                )
                var lines = from_
                if not high.kept:
                    lines = sums
                    unsafe_memset_zero(sums, count=rows)
                    for y in range(high.output):
                        for k in range(Int(high.counts[unsafe_offset=y])):
                            var i = y * high.taps + k
                            var row = Int(high.rows[unsafe_offset=i])
                            _add(
                                sums.unsafe_offset(row * wide.output),
                                from_.unsafe_offset(y * wide.output),
                                high.factors[unsafe_offset=i],
                                wide.output,
                            )
                var to = slice
                if single:
                    to = gradient.unsafe_offset(z * area)
                for y in range(high.input):
                    var line = lines.unsafe_offset(y * wide.output)
                    var row = to.unsafe_offset(y * wide.input)
                    for x in range(wide.input):
                        var sum = Scalar[dtype](0)
                        for e in range(
                            begins[unsafe_offset=x], begins[unsafe_offset = x + 1]
                        ):
                            sum = line[
                                unsafe_offset=Int(ends[unsafe_offset=e])
                            ].fma(weights[unsafe_offset=e], sum)
                        row[unsafe_offset=x] = sum
                if single:
                    continue
                for k in range(Int(deep.counts[unsafe_offset=z])):
                    var i = z * deep.taps + k
                    var at = Int(deep.rows[unsafe_offset=i])
                    _add(
                        gradient.unsafe_offset(at * area),
                        slice,
                        deep.factors[unsafe_offset=i],
                        area,
                    )

    in_numbered_ranges(work, planes, tasks)
    _ = users^
    _ = scratch^


@always_inline
def _share[
    kind: StaticString, floating: DType
](axis: Taps[kind, floating], at: Int, pixel: Int) -> Scalar[floating]:
    """What output `at` takes of a pixel."""
    var sum = Scalar[floating](0)
    for k in range(axis.count(at)):
        if axis.inside(axis.first(at) + k) == pixel:
            sum += axis.weight(at, k)
    return sum / axis.total(at)


@register("tmb_resample_backward")
struct ResampleBackward:
    """The gradient by the images, of that by the resized images. Inputs are as
    those of `tmb_resample`."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        result: OutputTensor[dtype=dtype, rank=5, ...],
        gradient: InputTensor[dtype=dtype, rank=5, ...],
        align: Int64,
        spatial: Int64,
        scale_d: Float64,
        scale_h: Float64,
        scale_w: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        if result.size() == 0:
            return
        if gradient.size() == 0:
            raise Error("an image cannot be resized to one without pixels")
        comptime floating = DType.float64 if dtype == DType.float64 else DType.float32
        var axes = axes[kind, floating, False](
            Tuple(
                result.dim_size[2](), result.dim_size[3](), result.dim_size[4]()
            ),
            Tuple(
                gradient.dim_size[2](),
                gradient.dim_size[3](),
                gradient.dim_size[4](),
            ),
            Tuple(scale_d, scale_h, scale_w),
            align != 0,
            True,
            Int(spatial),
        )
        var deep = axes[0]
        var high = axes[1]
        var wide = axes[2]
        comptime if target == "cpu":
            var deep_owner = Owner[dtype](deep)
            var high_owner = Owner[dtype](high)
            var wide_owner = Owner[dtype](wide)
            _resize_backward(
                untracked(gradient.unsafe_ptr()),
                untracked(result.unsafe_ptr()),
                result.dim_size[0]() * result.dim_size[1](),
                deep_owner.table(),
                high_owner.table(),
                wide_owner.table(),
            )
            _ = deep_owner^
            _ = high_owner^
            _ = wide_owner^
        else:
            var channels = result.dim_size[1]()
            var source = gradient.unsafe_ptr()

            @always_inline
            def body[
                width: Int
            ](idx: Coord[...]) {
                var channels, var deep, var high, var wide, var source
            } -> SIMD[dtype, width]:
                var values = SIMD[dtype, width](0)
                var plane = Int(idx[0].value()) * channels + Int(idx[1].value())
                var pz = Int(idx[2].value())
                var py = Int(idx[3].value())
                for lane in range(width):
                    var px = Int(idx[4].value()) + lane
                    var sum = Scalar[floating](0)
                    for z in range(deep.begin_of(pz), deep.end_of(pz)):
                        var slice = Scalar[floating](0)
                        for y in range(high.begin_of(py), high.end_of(py)):
                            var at = (plane * deep.output + z) * high.output + y
                            var row = Scalar[floating](0)
                            for x in range(wide.begin_of(px), wide.end_of(px)):
                                var value = source[
                                    unsafe_offset=at * wide.output + x
                                ].cast[floating]()
                                row += value * _share(wide, x, px)
                            slice += row * _share(high, y, py)
                        sum += slice * _share(deep, z, pz)
                    values[lane] = sum.cast[dtype]()
                return values

            foreach[target=target](body, result, ctx)
