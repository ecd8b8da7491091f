"""Gradients of layer norm: of its rows, its weight and its bias at once."""

from extensibility import InputTensor, OutputTensor, register
from extensibility import _FusedInputTensor as FusedInputTensor
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.index import IndexList

from ..core.fused import load
from ..core.memory import Address, untracked
from ..core.rounding import to_memory
from ..core.team import in_numbered_ranges, task_count

# Numbers that a task is worth.
comptime GRAIN = 16384
# Parts that many rows have at least, and the rows that a part then has at most.
# Both depend on sizes only: so do results, whatever the number of threads.
comptime PARTS = 64
comptime HEIGHT = 256
# Numbers of a row that are added up before they go to its sums.
comptime BLOCK = 4096
# Parts that are added up before they go to the total.
comptime FEW = 16


def wide[dtype: DType]() -> DType:
    """The dtype to compute in."""
    return dtype if dtype == DType.float64 else DType.float32


@always_inline
def tasks_of(numbers: Int, units: Int) -> Int:
    """How many tasks to cut `units` into that are so many numbers together."""
    return task_count(units, numbers, GRAIN)


@always_inline
def _columns[
    acc: DType,
    dtype: DType,
    rank: Int,
    Load: def[width: Int](IndexList[rank], Int) -> SIMD[dtype, width],
    //,
    width: Int,
    summed: Bool,
](
    load: Load,
    place: IndexList[rank],
    x: Address[dtype],
    factors: Address[acc],
    mean: Scalar[acc],
    scale: Scalar[acc],
    scaled: Address[acc],
    sums: Address[acc],
    columns: Int,
    j: Int,
    mut plain: SIMD[acc, width],
    mut along: SIMD[acc, width],
):
    """A vector of columns of a row: adds the gradients by the normalized row, which go to
    `scaled`, to `plain`, their products with the row to `along`, and what weight and bias
    get to `sums`."""
    var dy = load[width](place, j).cast[acc]()
    var v = x.unsafe_load[width=width](j).cast[acc]()
    var normal = (v - mean) * scale
    comptime if summed:
        var w = sums.unsafe_load[width=width](j)
        sums.unsafe_store(j, dy.fma(normal, w))
        var b = sums.unsafe_load[width=width](columns + j)
        sums.unsafe_store(columns + j, b + dy)
    dy *= factors.unsafe_load[width=width](j)
    scaled.unsafe_store(j, dy)
    plain += dy
    along = dy.fma(normal, along)


@always_inline
def _row[
    acc: DType,
    dtype: DType,
    rank: Int,
    Load: def[width: Int](IndexList[rank], Int) -> SIMD[dtype, width],
    //,
    summed: Bool,
](
    load: Load,
    place: IndexList[rank],
    x: Address[dtype],
    dx: Address[dtype],
    wanted: Bool,
    factors: Address[acc],
    mean: Scalar[acc],
    scale: Scalar[acc],
    scaled: Address[acc],
    sums: Address[acc],
    columns: Int,
):
    """The gradient of a row, and what it adds to those of weight and bias."""
    comptime width = simd_width_of[acc]()
    var plain = Scalar[acc](0)
    var along = Scalar[acc](0)
    var j = 0
    while j < columns:
        var end = min(j + BLOCK, columns)
        var some = SIMD[acc, width](0)
        var other = SIMD[acc, width](0)
        while j + width <= end:
            _columns[width, summed](
                load, place, x, factors, mean, scale, scaled, sums, columns, j, some, other
            )
            j += width
        var rest = SIMD[acc, 1](0)
        var others = SIMD[acc, 1](0)
        while j < end:
            _columns[1, summed](
                load, place, x, factors, mean, scale, scaled, sums, columns, j, rest, others
            )
            j += 1
        plain += some.reduce_add() + rest[0]
        along += other.reduce_add() + others[0]
    if not wanted:
        return
    var center = plain / Scalar[acc](columns)
    var slope = along / Scalar[acc](columns)

    @always_inline
    def write[w: Int](at: Int) {imm}:
        var v = x.unsafe_load[width=w](at).cast[acc]()
        var normal = (v - mean) * scale
        var dy = scaled.unsafe_load[width=w](at)
        var result = (dy - center - normal * slope) * scale
        dx.unsafe_store(at, to_memory[dtype](result))

    var k = 0
    while k + width <= columns:
        write[width](k)
        k += width
    while k < columns:
        write[1](k)
        k += 1


@no_inline
def _add_up[
    acc: DType, parameter: DType, //
](sums: Address[acc], parts: Int, distance: Int, columns: Int, to: Address[parameter]):
    """The sum of `parts` lines, `distance` numbers from each other, from the first to the last:
    little work beside that of the rows."""
    for j in range(columns):
        var total = Scalar[acc](0)
        var part = 0
        while part < parts:
            var end = min(part + FEW, parts)
            var some = Scalar[acc](0)
            while part < end:
                some += sums[unsafe_offset = part * distance + j]
                part += 1
            total += some
        to[unsafe_offset=j] = total.cast[parameter]()


@register("tmb_normalize_backward")
struct NormalizeBackward:
    """The gradients of what `tmb_normalize` with one group is given, from that of its result,
    `dy`, and the statistics that it returned. What computes `dy` becomes a part of this kernel.

    Empty outputs are not wanted: without `summed` neither `dweight` nor `dbias` is. An empty
    weight is none."""

    @staticmethod
    def execute[
        dtype: DType,
        moment: DType,
        parameter: DType,
        rank: Int,
        //,
        summed: Bool,
        target: StaticString,
    ](
        dx: OutputTensor[dtype=dtype, rank=2, ...],
        dweight: OutputTensor[dtype=parameter, rank=1, ...],
        dbias: OutputTensor[dtype=parameter, rank=1, ...],
        dy: FusedInputTensor[dtype=dtype, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        means: InputTensor[dtype=moment, rank=1, ...],
        deviations: InputTensor[dtype=moment, rank=1, ...],
        weight: InputTensor[dtype=parameter, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernels"
        comptime assert dtype.is_floating_point(), "float only"
        comptime acc = wide[dtype]()
        var rows = x.dim_size[0]()
        var columns = x.dim_size[1]()
        var xp = untracked(x.unsafe_ptr())
        var mp = untracked(means.unsafe_ptr())
        var rp = untracked(deviations.unsafe_ptr())
        var to = untracked(dx.unsafe_ptr())
        var wanted = dx.size() != 0
        var height = max(
            ceildiv(GRAIN, max(columns, 1)), min(HEIGHT, ceildiv(rows, PARTS))
        )
        var parts = ceildiv(rows, height)
        var tasks = tasks_of(rows * columns, parts)
        var factors = List[Scalar[acc]](length=columns, fill=1)
        if weight.dim_size[0]() != 0:
            var wp = weight.unsafe_ptr()
            for j in range(columns):
                factors[j] = wp[unsafe_offset=j].cast[acc]()
        var fp = untracked(factors.unsafe_ptr())
        var scratch = List[Scalar[acc]](unsafe_uninit_length=tasks * columns)
        var scaled = untracked(scratch.unsafe_ptr())

        @always_inline
        def gradient[w: Int](at: IndexList[rank], j: Int) {var dy} -> SIMD[dtype, w]:
            var place = at
            place[rank - 1] = j
            return load[w](dy, place)

        @always_inline
        def place(row: Int) {var dy} -> IndexList[rank]:
            var at = IndexList[rank](0)
            var rest = row
            comptime for i in range(rank - 2, 0, -1):
                at[i] = rest % dy.dim_size[i]()
                rest //= dy.dim_size[i]()
            at[0] = rest
            return at

        comptime lines = 2 if summed else 0
        var sums = List[Scalar[acc]](length=parts * lines * columns, fill=0)
        var sp = untracked(sums.unsafe_ptr())

        def work(task: Int, lower: Int, upper: Int) {imm}:
            var own = scaled.unsafe_offset(task * columns)
            for part in range(lower, upper):
                var r = part * height
                for row in range(r, min(rows, r + height)):
                    _row[summed](
                        gradient,
                        place(row),
                        xp.unsafe_offset(row * columns),
                        to.unsafe_offset(row * columns),
                        wanted,
                        fp,
                        mp[unsafe_offset=row].cast[acc](),
                        rp[unsafe_offset=row].cast[acc](),
                        own,
                        sp.unsafe_offset(part * lines * columns),
                        columns,
                    )

        in_numbered_ranges(work, parts, tasks)
        comptime if summed:
            if dweight.dim_size[0]() != 0:
                var wp = untracked(dweight.unsafe_ptr())
                _add_up(sp, parts, lines * columns, columns, wp)
            if dbias.dim_size[0]() != 0:
                var bp = untracked(dbias.unsafe_ptr())
                _add_up(sp.unsafe_offset(columns), parts, lines * columns, columns, bp)
        _ = sums^
        _ = scratch^
        _ = factors^
