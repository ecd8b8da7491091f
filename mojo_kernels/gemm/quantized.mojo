"""Matrix products with weights of few bits, which are widened on their way to the sums: what is
read of memory is what is stored."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.memory import Pointer, bitcast
from std.sys import CompilationTarget, llvm_intrinsic, simd_width_of

from ..core.memory import Address, untracked
from ..core.rounding import to_memory
from ..core.team import STEPS, in_numbered_ranges, in_ranges
from ..mathematics.float8 import float8
from .blas import ROWS, Gemm, product_cost, tasks_for
from .grids import Grid
from .panels import COLUMNS, DEPTH, TALL, WIDE, Matrix, left_size, pack_left, tiles

comptime SUM = DType.float32
# Numbers widened at a time.
comptime SOME = 16
# Rows whose sums stay in registers.
comptime FEW = 4

comptime Vector = SIMD[SUM, SOME]

# Whether one instruction looks up numbers of 4 bits: these then come as -8 to 7, else as 0 to 15.
comptime LOOKED_UP = STEPS and CompilationTarget.has_avx512f()
comptime LEAST = -8 if LOOKED_UP else 0
# Whether a row is multiplied word by word, and the columns of a block that has four a step.
comptime IN_WORDS = STEPS and not LOOKED_UP
comptime COLUMNS_OF_WORDS = 32


@register("tmb_scaled_matmul")
struct ScaledMatmul:
    """`output[i, j] = bias[j] + scales[j] * sum(a[i, p] * b[j, p] over p)` of weights `b[columns, inner]`, or
    `b[inner, columns]` if it is not transposed: of int8, or bytes that stand for the kind of float8.
    Sums are of float32, scaled, and rounded once. An empty bias is none."""

    @staticmethod
    def execute[
        dtype: DType,
        right_type: DType,
        scale_type: DType,
        //,
        kind: StaticString,
        target: StaticString,
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        a: InputTensor[dtype=dtype, rank=2, ...],
        b: InputTensor[dtype=right_type, rank=2, ...],
        scales: InputTensor[dtype=scale_type, rank=1, ...],
        bias: InputTensor[dtype=dtype, rank=1, ...],
        transposed_b: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "weights of few bits are multiplied on CPU"
        var m = output.dim_size[0]()
        var n = output.dim_size[1]()
        var k = a.dim_size[1]()
        if m * n == 0:
            return
        var row_a = a.stride_length[0]()
        var row_b = b.stride_length[0]()
        var tb = transposed_b != 0
        comptime stored = right_type if kind == "int8" else float8[kind]()
        var ap = untracked(a.unsafe_ptr())
        var bp = untracked(b.unsafe_ptr()).unsafe_bitcast[Scalar[stored]]()
        var cp = untracked(output.unsafe_ptr())
        var factors = untracked(scales.unsafe_ptr())
        var addend = untracked(bias.unsafe_ptr())
        var biased = bias.dim_size[0]() != 0
        var grid = Grid(1, m, n, k)
        var scratch = List[Scalar[SUM]](unsafe_uninit_length=grid.tasks * ROWS * COLUMNS)
        var sp = untracked(scratch.unsafe_ptr())

        def work(task: Int, lower: Int, upper: Int) {
            var grid, var n, var k, var row_a, var row_b, var tb, var ap, var bp, var cp,
            var factors, var addend, var biased, var sp
        }:
            var gemm = Gemm(0, 0)
            var sums = sp.unsafe_offset(task * ROWS * COLUMNS)
            for unit in range(lower, upper):
                var part = grid.part(unit)
                for i in range(part.row, part.row + part.rows, ROWS):
                    for j in range(part.column, part.column + part.columns, COLUMNS):
                        var rows = min(ROWS, part.row + part.rows - i)
                        var columns = min(COLUMNS, part.column + part.columns - j)
                        gemm.multiply(
                            rows,
                            columns,
                            k,
                            ap.unsafe_offset(i * row_a),
                            row_a,
                            False,
                            bp.unsafe_offset(j * row_b if tb else j),
                            row_b,
                            tb,
                            sums,
                            columns,
                        )
                        for h in range(rows):
                            _scale(
                                cp.unsafe_offset((i + h) * n + j),
                                sums.unsafe_offset(h * columns),
                                factors.unsafe_offset(j),
                                addend.unsafe_offset(j),
                                biased,
                                columns,
                            )

        in_numbered_ranges(work, grid.units, grid.tasks)
        _ = scratch^


@register("tmb_integer_matmul")
struct IntegerMatmul:
    """`a op(b)` of numbers of 8 bits, in int32."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int32, rank=2, ...],
        a: InputTensor[dtype=dtype, rank=2, ...],
        b: InputTensor[dtype=DType.int8, rank=2, ...],
        transposed_b: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own product"
        var m = output.dim_size[0]()
        var n = output.dim_size[1]()
        var k = a.dim_size[1]()
        if m * n == 0:
            return
        var row_a = a.stride_length[0]()
        var row_b = b.stride_length[0]()
        var tb = transposed_b != 0
        var ap = untracked(a.unsafe_ptr())
        var bp = untracked(b.unsafe_ptr())
        var cp = untracked(output.unsafe_ptr())
        var grid = Grid(1, m, n, k)

        def work(lower: Int, upper: Int) {
            var grid, var n, var k, var row_a, var row_b, var tb, var ap, var bp, var cp
        }:
            var gemm = Gemm(0, 0)
            for unit in range(lower, upper):
                var part = grid.part(unit)
                if part.is_empty():
                    continue
                gemm.multiply(
                    part.rows,
                    part.columns,
                    k,
                    ap.unsafe_offset(part.row * row_a),
                    row_a,
                    False,
                    bp.unsafe_offset(part.column * row_b if tb else part.column),
                    row_b,
                    tb,
                    cp.unsafe_offset(part.row * n + part.column),
                    n,
                )

        in_ranges(work, grid.units, grid.tasks)


@always_inline
def _scale[
    dtype: DType, scale_type: DType, //
](
    to: Address[dtype],
    sums: Address[SUM],
    scales: Address[scale_type],
    bias: Address[dtype],
    biased: Bool,
    columns: Int,
):
    """`to = sums * scales + bias`, of a part of a row."""
    var j = 0
    while j + SOME <= columns:
        var v = sums.unsafe_load[width=SOME](j) * scales.unsafe_load[width=SOME](j).cast[SUM]()
        if biased:
            v += bias.unsafe_load[width=SOME](j).cast[SUM]()
        to.unsafe_store[width=SOME](j, to_memory[dtype](v))
        j += SOME
    while j < columns:
        var v = sums.unsafe_load[width=1](j) * scales.unsafe_load[width=1](j).cast[SUM]()
        if biased:
            v += bias.unsafe_load[width=1](j).cast[SUM]()
        to.unsafe_store[width=1](j, to_memory[dtype](v))
        j += 1


@register("tmb_int4_matmul")
struct Int4Matmul:
    """`a w` of weights `w[p, j] = (q[p, j] - 8) * scale + zero`, of 4 bits as
    `aten._convert_weight_to_int4pack_for_cpu` packs them: in blocks of `BLOCK` columns, each step
    of the inner dimension side by side. `scales[group of p, j]` holds scale and zero."""

    @staticmethod
    def execute[
        dtype: DType, //, block: Int, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        a: InputTensor[dtype=dtype, rank=2, ...],
        b: InputTensor[dtype=DType.uint8, rank=2, ...],
        scales: InputTensor[dtype=dtype, rank=3, ...],
        group: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "weights of few bits are multiplied on CPU"
        var m = output.dim_size[0]()
        var n = output.dim_size[1]()
        var k = a.dim_size[1]()
        if m * n == 0:
            return
        var weights = Packed[dtype, block](
            untracked(b.unsafe_ptr()),
            untracked(scales.unsafe_ptr()),
            n,
            k,
            Int(group),
        )
        var left = Matrix(untracked(a.unsafe_ptr()), a.stride_length[0](), 1)
        var cp = untracked(output.unsafe_ptr())
        var blocks = ceildiv(n, block)

        def work(lower: Int, upper: Int) {var weights, var left, var cp, var m, var n}:
            if m > FEW:
                _many(weights, left, cp, m, lower, upper)
                return
            var wide = List[Scalar[SUM]](unsafe_uninit_length=m * weights.k)
            for i in range(m):
                for p in range(weights.k):
                    wide[i * weights.k + p] = left.at(i, p)[].cast[SUM]()
            var lines = Matrix(
                untracked(wide.unsafe_ptr()), weights.k, 1
            )
            comptime if IN_WORDS and block == COLUMNS_OF_WORDS:
                if m == 1 and weights.in_pairs():
                    _one_row(weights, untracked(wide.unsafe_ptr()), cp, lower, upper)
                    _ = wide^
                    return
            for b in range(lower, upper):
                var to = cp.unsafe_offset(b * block)
                comptime for rows in range(1, FEW + 1):
                    if rows == m:
                        _few[rows](weights, lines, to, b)
            _ = wide^

        in_ranges(work, blocks, tasks_for(blocks, product_cost(1, m, n, k)))


struct Packed[dtype: DType, block: Int](TrivialRegisterPassable):
    """Weights of 4 bits with their scales."""

    var bytes: Pointer[UInt8, UntrackedOrigin[mut=True]]
    var scales: Address[Self.dtype]
    var n: Int
    var k: Int
    var group: Int

    @always_inline
    def __init__(
        out self,
        bytes: Address[DType.uint8],
        scales: Address[Self.dtype],
        n: Int,
        k: Int,
        group: Int,
    ):
        self.bytes = untracked(bytes)
        self.scales = untracked(scales)
        self.n = n
        self.k = k
        self.group = group

    @always_inline
    def columns(self, number: Int) -> Int:
        """Columns of a block."""
        return min(Self.block, self.n - number * Self.block)

    @always_inline
    def in_pairs(self) -> Bool:
        """Whether two steps of the inner dimension are always of one group."""
        return self.group % 2 == 0 and self.k % 2 == 0

    @always_inline
    def line(self, number: Int, p: Int) -> Pointer[UInt8, UntrackedOrigin[mut=True]]:
        """The bytes of a block at a step of the inner dimension."""
        var start = number * Self.block // 2 * self.k
        return self.bytes.unsafe_offset(start + p * (self.columns(number) // 2))

    @always_inline
    def factors(self, number: Int, p: Int, column: Int) -> Tuple[Vector, Vector]:
        """Scales of some columns of a block, and what is added to each of their scaled numbers."""
        var at = (p // self.group * self.n + number * Self.block + column) * 2
        var scale: Vector
        var zero: Vector
        comptime if Self.dtype == DType.bfloat16:
            # The upper half of a float32 each: the two of a column are one word.
            var words = self.scales.unsafe_offset(at).unsafe_bitcast[Int32]().unsafe_load[width=SOME]()
            scale = bitcast[SUM, SOME](words << 16)
            zero = bitcast[SUM, SOME](words & SIMD[DType.int32, SOME](-65536))
        else:
            var both = self.scales.unsafe_load[width = 2 * SOME](at).cast[SUM]().deinterleave()
            scale = both[0]
            zero = both[1]
        return scale, scale.fma(Vector(-(8 + LEAST)), zero)


@always_inline
def _numbers(words: SIMD[DType.int32, SOME]) -> Vector:
    """The numbers of the last 4 bits of words, from `LEAST` on."""
    comptime if LOOKED_UP:
        var table = Vector(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)
        return llvm_intrinsic["llvm.x86.avx512.permvar.sf.512", Vector](table, words)
    else:
        return (words & 15).cast[SUM]()


@always_inline
def _widened[block: Int, number: Int](line: Pointer[UInt8, UntrackedOrigin[mut=True]]) -> Vector:
    """Some numbers of a whole block, from column `number * SOME` on."""
    comptime half = block // SOME // 2
    var words = line.unsafe_load[width=SOME](number % half * SOME).cast[DType.int32]()
    comptime if number >= half:
        words = words >> 4
    return _numbers(words)


@always_inline
def _widened_pairs(line: Pointer[UInt8, UntrackedOrigin[mut=True]], number: Int) -> Vector:
    """The same of a block that is not whole: neighbours share a byte."""
    var bytes = line.unsafe_load[width = SOME // 2](number * (SOME // 2))
    return _numbers(bytes.interleave(bytes >> 4).cast[DType.int32]())


def _one_row[
    dtype: DType, block: Int, //
](weights: Packed[dtype, block], a: Address[SUM], c: Address[dtype], first: Int, last: Int):
    """Blocks of columns of a result of one row."""
    var groups = ceildiv(weights.k, weights.group)
    var totals = List[Scalar[SUM]](length=groups, fill=0)
    for p in range(weights.k):
        totals[p // weights.group] += a[unsafe_offset=p]
    for b in range(first, last):
        if weights.columns(b) == block:
            _by_words(weights, a, untracked(totals.unsafe_ptr()), c.unsafe_offset(b * block), b)
        else:
            _few[1](weights, Matrix(a, weights.k, 1), c.unsafe_offset(b * block), b)
    _ = totals^


def _by_words[
    dtype: DType, block: Int, //
](
    weights: Packed[dtype, block],
    a: Address[SUM],
    totals: Address[SUM],
    c: Address[dtype],
    number: Int,
):
    """A whole block of columns of one row, two steps of the inner dimension at a time.

    A word of memory has numbers of eight columns. They are multiplied where they lie in it, 16, 256
    or 4096 times as large as they are, and the sums scaled down.
    """
    comptime Words = SIMD[DType.int32, 8]
    comptime Part = SIMD[SUM, 8]
    var first = Vector(0)
    var second = Vector(0)
    for p0 in range(0, weights.k, weights.group):
        var line = weights.line(number, p0).unsafe_bitcast[Int32]()
        var parts = Array[Part, 8](fill=Part(0))
        var lefts = a.unsafe_offset(p0)
        for _ in range(min(weights.k - p0, weights.group) // 2):
            var lower = line.unsafe_load[width=8]()
            var upper = lower >> 16
            var left = SIMD[SUM, 4](lefts[]).join(SIMD[SUM, 4](lefts[unsafe_offset=1]))
            comptime for i in range(4):
                comptime mask = Words(15 << (4 * i))
                parts[i] = (lower & mask).cast[SUM]().fma(rebind[Part](left), parts[i])
                parts[4 + i] = (upper & mask).cast[SUM]().fma(rebind[Part](left), parts[4 + i])
            line = line.unsafe_offset(8)
            lefts = lefts.unsafe_offset(2)
        var scale, zero = weights.factors(number, p0, 0)
        var total = Vector(totals[unsafe_offset = p0 // weights.group])
        first = zero.fma(total, _by_columns[0](parts).fma(scale, first))
        scale, zero = weights.factors(number, p0, SOME)
        second = zero.fma(total, _by_columns[1](parts).fma(scale, second))
    c.unsafe_store(0, to_memory[dtype](first))
    c.unsafe_store(SOME, to_memory[dtype](second))


@always_inline
def _by_columns[high: Int](parts: Array[SIMD[SUM, 8], 8]) -> Vector:
    """Sums of the lower numbers of bytes, or of the higher ones, in the order of their columns."""
    comptime Four = SIMD[SUM, 4]
    var found = Array[Four, 4](fill=Four(0))
    comptime for byte in range(4):
        comptime i = 2 * byte + high
        comptime factor = Scalar[SUM](1.0 / Float64(1 << (4 * (i % 4))))
        var both = parts[i]
        found[byte] = (both.slice[4]() + both.slice[4, offset=4]()) * Four(factor)
    var even = found[0].interleave(found[2])
    var odd = found[1].interleave(found[3])
    return rebind[Vector](even.interleave(odd))


def _few[
    dtype: DType, block: Int, //, rows: Int
](weights: Packed[dtype, block], a: Matrix[SUM], c: Address[dtype], number: Int):
    """A block of columns of the result, for so few rows that all sums stay in registers."""
    comptime across = block // SOME
    var whole = weights.columns(number) == block
    var wide = weights.columns(number) // SOME
    var sums = Array[Vector, rows * across](fill=Vector(0))
    for p0 in range(0, weights.k, weights.group):
        # Of a group: products with its numbers, and what its constant is multiplied by.
        var products = Array[Vector, rows * across](fill=Vector(0))
        var totals = Array[Scalar[SUM], rows](fill=0)
        for p in range(p0, min(weights.k, p0 + weights.group)):
            var line = weights.line(number, p)
            var left = Array[Scalar[SUM], rows](fill=0)
            comptime for r in range(rows):
                left[r] = a.at(r, p)[]
                totals[r] += left[r]
            comptime for s in range(across):
                var q = Vector(0)
                if whole:
                    q = _widened[block, s](line)
                elif s < wide:
                    q = _widened_pairs(line, s)
                comptime for r in range(rows):
                    products[r * across + s] = Vector(left[r]).fma(q, products[r * across + s])
        comptime for s in range(across):
            if s < wide:
                var scale, zero = weights.factors(number, p0, s * SOME)
                comptime for r in range(rows):
                    var sum = products[r * across + s].fma(scale, sums[r * across + s])
                    sums[r * across + s] = zero.fma(Vector(totals[r]), sum)
    comptime for r in range(rows):
        comptime for s in range(across):
            if s < wide:
                c.unsafe_store[width=SOME](
                    r * weights.n + s * SOME, to_memory[dtype](sums[r * across + s])
                )


def _many[
    dtype: DType, block: Int, //
](weights: Packed[dtype, block], a: Matrix[dtype], c: Address[dtype], m: Int, first: Int, last: Int):
    """Blocks of columns of the result: the weights of some steps of the inner dimension are
    widened for all rows."""
    comptime width = simd_width_of[SUM]()
    comptime panel = WIDE * width
    var deep = max(weights.group, DEPTH // weights.group * weights.group)
    var across = last * block - first * block
    var left = List[Scalar[SUM]](unsafe_uninit_length=left_size(m, deep) + width)
    var right = List[Scalar[SUM]](unsafe_uninit_length=deep * block)
    var sums = List[Scalar[SUM]](unsafe_uninit_length=min(m, TALL) * across)
    var lp = untracked(left.unsafe_ptr())
    var rp = untracked(right.unsafe_ptr())
    var sp = untracked(sums.unsafe_ptr())
    for i in range(0, m, TALL):
        var rows = min(TALL, m - i)
        for p in range(0, weights.k, deep):
            var depth = min(deep, weights.k - p)
            pack_left(lp, a.from_(i, p), rows, depth)
            for b in range(first, last):
                _widen(weights, b, p, depth, rp)
                var columns = weights.columns(b)
                for j in range(0, columns, panel):
                    tiles(
                        rows,
                        min(panel, columns - j),
                        depth,
                        lp,
                        rp.unsafe_offset(j),
                        block,
                        sp.unsafe_offset((b - first) * block + j),
                        across,
                        p != 0,
                        a,
                        0,
                    )
        for h in range(rows):
            for j in range(0, min(across, weights.n - first * block), SOME):
                c.unsafe_store[width=SOME](
                    (i + h) * weights.n + first * block + j,
                    to_memory[dtype](sp.unsafe_load[width=SOME](h * across + j)),
                )
    _ = left^
    _ = right^
    _ = sums^


def _widen[
    dtype: DType, block: Int, //
](weights: Packed[dtype, block], number: Int, start: Int, depth: Int, to: Address[SUM]):
    """Weights of a block in float32, `[depth, block]`, from a step of the inner dimension on."""
    comptime across = block // SOME
    var whole = weights.columns(number) == block
    var wide = weights.columns(number) // SOME
    for p0 in range(start, start + depth, weights.group):
        comptime for s in range(across):
            if s < wide:
                var scale, zero = weights.factors(number, p0, s * SOME)
                for p in range(p0, min(start + depth, p0 + weights.group)):
                    var line = weights.line(number, p)
                    var q = _widened[block, s](line) if whole else _widened_pairs(line, s)
                    to.unsafe_store[width=SOME](
                        (p - start) * block + s * SOME, q.fma(scale, zero)
                    )
