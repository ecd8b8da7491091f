"""Gradients of layer norm: of its rows, its weight and its bias at once."""

from extensibility import InputTensor, OutputTensor, register
from extensibility import _FusedInputTensor as FusedInputTensor
from max.algorithm import sync_parallelize
from max.gpu.host import DeviceContext
from max.runtime.asyncrt import parallelism_level
from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.index import IndexList

from .memory import Address, Untracked

# Numbers that a task is worth.
comptime GRAIN = 16384
# Parts that many rows have at least, and the rows that a part then has at most.
# Both depend on sizes only: so do results, whatever the number of threads.
comptime PARTS = 64
comptime HEIGHT = 256
# Rows that are read beside each other: one access to the weights' sums for all.
comptime BESIDE = 4
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
    return max(1, min(min(parallelism_level(None), units), numbers // GRAIN))


@always_inline
def each_task[
    Work: (def(Int) -> None) & RegisterPassable & ImplicitlyCopyable, //
](work: Work, tasks: Int):
    """Calls `work` with each task, a single one on this thread."""
    if tasks == 1:
        work(0)
    else:
        sync_parallelize(work, tasks)


@always_inline
def _columns[
    acc: DType,
    dtype: DType,
    rank: Int,
    Load: def[width: Int](IndexList[rank], Int) -> SIMD[dtype, width],
    //,
    width: Int,
    count: Int,
    summed: Bool,
](
    load: Load,
    places: Array[IndexList[rank], count],
    x: Address[dtype],
    factors: Address[acc],
    mean: Array[Scalar[acc], count],
    scale: Array[Scalar[acc], count],
    scaled: Address[acc],
    sums: Address[acc],
    columns: Int,
    j: Int,
    mut plain: Array[SIMD[acc, width], count],
    mut along: Array[SIMD[acc, width], count],
):
    """A vector of columns of `count` rows: adds the gradients by the normalized rows,
    which go to `scaled`, to `plain`, their products with these rows to `along`, and
    what weight and bias get to `sums`."""
    var factor = factors.unsafe_load[width=width](j)
    var by_weight = SIMD[acc, width](0)
    var by_bias = SIMD[acc, width](0)
    comptime for i in range(count):
        var dy = load[width](places[i], j).cast[acc]()
        var v = x.unsafe_load[width=width](i * columns + j).cast[acc]()
        var normal = (v - mean[i]) * scale[i]
        comptime if summed:
            by_weight = dy.fma(normal, by_weight)
            by_bias += dy
        dy *= factor
        scaled.unsafe_store(i * columns + j, dy)
        plain[i] += dy
        along[i] = dy.fma(normal, along[i])
    comptime if summed:
        var w = sums.unsafe_load[width=width](j)
        sums.unsafe_store(j, w + by_weight)
        var b = sums.unsafe_load[width=width](columns + j)
        sums.unsafe_store(columns + j, b + by_bias)


@always_inline
def _rows[
    acc: DType,
    dtype: DType,
    rank: Int,
    Load: def[width: Int](IndexList[rank], Int) -> SIMD[dtype, width],
    //,
    count: Int,
    summed: Bool,
](
    load: Load,
    places: Array[IndexList[rank], count],
    x: Address[dtype],
    dx: Address[dtype],
    wanted: Bool,
    factors: Address[acc],
    mean: Array[Scalar[acc], count],
    scale: Array[Scalar[acc], count],
    scaled: Address[acc],
    sums: Address[acc],
    columns: Int,
):
    """The gradients of `count` rows, and what they add to those of weight and bias."""
    comptime width = simd_width_of[acc]()
    var plain = Array[Scalar[acc], count](fill=0)
    var along = Array[Scalar[acc], count](fill=0)
    var j = 0
    while j < columns:
        var end = min(j + BLOCK, columns)
        var some = Array[SIMD[acc, width], count](fill=0)
        var other = Array[SIMD[acc, width], count](fill=0)
        while j + width <= end:
            _columns[width, count, summed](
                load, places, x, factors, mean, scale, scaled, sums, columns, j, some, other
            )
            j += width
        var rest = Array[SIMD[acc, 1], count](fill=0)
        var others = Array[SIMD[acc, 1], count](fill=0)
        while j < end:
            _columns[1, count, summed](
                load, places, x, factors, mean, scale, scaled, sums, columns, j, rest, others
            )
            j += 1
        comptime for i in range(count):
            plain[i] += some[i].reduce_add() + rest[i][0]
            along[i] += other[i].reduce_add() + others[i][0]
    if not wanted:
        return
    comptime for i in range(count):
        var center = plain[i] / Scalar[acc](columns)
        var slope = along[i] / Scalar[acc](columns)

        @always_inline
        def write[w: Int](at: Int) {imm}:
            var v = x.unsafe_load[width=w](i * columns + at).cast[acc]()
            var normal = (v - mean[i]) * scale[i]
            var dy = scaled.unsafe_load[width=w](i * columns + at)
            var result = (dy - center - normal * slope) * scale[i]
            dx.unsafe_store(i * columns + at, result.cast[dtype]())

        var k = 0
        while k + width <= columns:
            write[width](k)
            k += width
        while k < columns:
            write[1](k)
            k += 1


def _total[
    acc: DType, parameter: DType, //, width: Int
](sums: Address[acc], parts: Int, distance: Int, j: Int, to: Address[parameter]):
    """Adds up column `j` of the parts' sums, from the first part to the last."""
    var total = SIMD[acc, width](0)
    var part = 0
    while part < parts:
        var end = min(part + FEW, parts)
        var some = SIMD[acc, width](0)
        while part < end:
            some += sums.unsafe_load[width=width](part * distance + j)
            part += 1
        total += some
    to.unsafe_store(j, total.cast[parameter]())


def add_up[
    acc: DType, parameter: DType, //
](sums: Address[acc], parts: Int, distance: Int, columns: Int, to: Address[parameter]):
    """The sum of `parts` lines, `distance` numbers from each other."""
    comptime width = simd_width_of[acc]()
    var tasks = tasks_of(parts * columns, ceildiv(columns, width))
    var chunk = ceildiv(ceildiv(columns, width), tasks) * width

    def work(
        task: Int,
    ) {var sums, var parts, var distance, var columns, var chunk, var to}:
        var j = task * chunk
        var end = min(columns, j + chunk)
        while j + width <= end:
            _total[width](sums, parts, distance, j, to)
            j += width
        while j < end:
            _total[1](sums, parts, distance, j, to)
            j += 1

    each_task(work, tasks)


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
        var xp = x.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var mp = means.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var rp = deviations.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var to = dx.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var wanted = dx.size() != 0
        var height = max(
            ceildiv(GRAIN, max(columns, 1)), min(HEIGHT, ceildiv(rows, PARTS))
        )
        var parts = ceildiv(rows, height)
        var tasks = tasks_of(rows * columns, parts)
        var share = ceildiv(parts, tasks)
        var factors = List[Scalar[acc]](length=columns, fill=1)
        if weight.dim_size[0]() != 0:
            var wp = weight.unsafe_ptr()
            for j in range(columns):
                factors[j] = wp[unsafe_offset=j].cast[acc]()
        var fp = factors.unsafe_ptr().unsafe_origin_cast[Untracked]()
        var scratch = List[Scalar[acc]](unsafe_uninit_length=tasks * BESIDE * columns)
        var scaled = scratch.unsafe_ptr().unsafe_origin_cast[Untracked]()

        @always_inline
        def load[w: Int](at: IndexList[rank], j: Int) {var dy} -> SIMD[dtype, w]:
            var place = at
            place[rank - 1] = j
            return dy._fused_load[w](place)

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
        var sp = sums.unsafe_ptr().unsafe_origin_cast[Untracked]()

        @always_inline
        def rows_at[count: Int](r: Int, to_scaled: Address[acc], to_sums: Address[acc]) {imm}:
            var places = Array[IndexList[rank], count](fill=place(r))
            var mean = Array[Scalar[acc], count](fill=0)
            var scale = Array[Scalar[acc], count](fill=0)
            comptime for i in range(count):
                places[i] = place(r + i)
                mean[i] = mp[unsafe_offset = r + i].cast[acc]()
                scale[i] = rp[unsafe_offset = r + i].cast[acc]()
            _rows[count, summed](
                load,
                places,
                xp.unsafe_offset(r * columns),
                to.unsafe_offset(r * columns),
                wanted,
                fp,
                mean,
                scale,
                to_scaled,
                to_sums,
                columns,
            )

        def work(task: Int) {imm}:
            var own = scaled.unsafe_offset(task * BESIDE * columns)
            for part in range(task * share, min(parts, (task + 1) * share)):
                var r = part * height
                var end = min(rows, r + height)
                var part_sums = sp.unsafe_offset(part * lines * columns)
                while r + BESIDE <= end:
                    rows_at[BESIDE](r, own, part_sums)
                    r += BESIDE
                while r < end:
                    rows_at[1](r, own, part_sums)
                    r += 1

        each_task(work, tasks)
        comptime if summed:
            if dweight.dim_size[0]() != 0:
                var wp = dweight.unsafe_ptr().unsafe_origin_cast[Untracked]()
                add_up(sp, parts, lines * columns, columns, wp)
            if dbias.dim_size[0]() != 0:
                var bp = dbias.unsafe_ptr().unsafe_origin_cast[Untracked]()
                add_up(sp.unsafe_offset(columns), parts, lines * columns, columns, bp)
        _ = sums^
        _ = scratch^
        _ = factors^
