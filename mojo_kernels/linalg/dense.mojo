"""What factorizations are made of: vectors, products that are taken away from a matrix and
triangular systems. Matrices lie row by row; `row` is the distance of their rows."""

from max.gpu.host import DeviceContext
from std.math import ceildiv, sqrt
from std.sys import simd_width_of
from std.utils.numerics import isfinite

from ..core.lines import each_line
from ..core.memory import Address, untracked
from ..core.team import in_ranges, parallelism_level
from ..gemm.panels import COLUMNS, DEPTH, WIDE, Matrix, left_size, pack, packed_product, right_size

# Multiplications a thread should have at least: about 20 microseconds.
comptime GRAIN = 1_000_000
# Rows or columns that a task has a multiple of.
comptime TILE = 32
# Triangular systems of so many unknowns are solved row by row.
comptime SMALL = 16
# Fewer right-hand sides than this are no matrix product.
comptime NARROW = 4


@always_inline
def each_matrix[
    Work: (def(Int, Int) -> None) & RegisterPassable & ImplicitlyCopyable,
    //,
    target: StaticString,
](work: Work, batch: Int, cost: Int, ctx: DeviceContext) raises:
    """Calls `work(item, threads)` for each matrix of a batch: a thread a matrix, or all threads
    for the only one."""
    comptime if target == "cpu":
        if batch == 1:
            work(0, parallelism_level(None))
            return

    @always_inline
    def alone(item: Int) {var work}:
        work(item, 1)

    each_line[target=target](alone, batch, cost, ctx)


@always_inline
def dot[
    dtype: DType, //
](a: Address[dtype], b: Address[dtype], n: Int) -> Scalar[dtype]:
    """The sum of products of `n` numbers."""
    comptime width = simd_width_of[dtype]()
    var sum0 = SIMD[dtype, width](0)
    var sum1 = SIMD[dtype, width](0)
    var sum2 = SIMD[dtype, width](0)
    var sum3 = SIMD[dtype, width](0)
    var i = 0
    while i + 4 * width <= n:
        sum0 = a.unsafe_load[width=width](i).fma(b.unsafe_load[width=width](i), sum0)
        sum1 = a.unsafe_load[width=width](i + width).fma(
            b.unsafe_load[width=width](i + width), sum1
        )
        sum2 = a.unsafe_load[width=width](i + 2 * width).fma(
            b.unsafe_load[width=width](i + 2 * width), sum2
        )
        sum3 = a.unsafe_load[width=width](i + 3 * width).fma(
            b.unsafe_load[width=width](i + 3 * width), sum3
        )
        i += 4 * width
    while i + width <= n:
        sum0 = a.unsafe_load[width=width](i).fma(b.unsafe_load[width=width](i), sum0)
        i += width
    var total = ((sum0 + sum1) + (sum2 + sum3)).reduce_add()
    while i < n:
        total = a[unsafe_offset=i].fma(b[unsafe_offset=i], total)
        i += 1
    return total


@always_inline
def add_scaled[
    dtype: DType, //
](y: Address[dtype], x: Address[dtype], factor: Scalar[dtype], n: Int):
    """`y += factor * x`."""
    comptime width = simd_width_of[dtype]()
    var by = SIMD[dtype, width](factor)
    var i = 0
    while i + width <= n:
        y.unsafe_store(
            i, by.fma(x.unsafe_load[width=width](i), y.unsafe_load[width=width](i))
        )
        i += width
    while i < n:
        y[unsafe_offset=i] = factor.fma(x[unsafe_offset=i], y[unsafe_offset=i])
        i += 1


@always_inline
def add_two_scaled[
    dtype: DType, //
](
    y: Address[dtype],
    x: Address[dtype],
    factor: Scalar[dtype],
    other: Address[dtype],
    second: Scalar[dtype],
    n: Int,
):
    """`y += factor * x + second * other`."""
    comptime width = simd_width_of[dtype]()
    var by = SIMD[dtype, width](factor)
    var too = SIMD[dtype, width](second)
    var i = 0
    while i + width <= n:
        var v = by.fma(x.unsafe_load[width=width](i), y.unsafe_load[width=width](i))
        y.unsafe_store(i, too.fma(other.unsafe_load[width=width](i), v))
        i += width
    while i < n:
        var v = factor.fma(x[unsafe_offset=i], y[unsafe_offset=i])
        y[unsafe_offset=i] = second.fma(other[unsafe_offset=i], v)
        i += 1


@always_inline
def scale[dtype: DType, //](x: Address[dtype], factor: Scalar[dtype], n: Int):
    """`x *= factor`."""
    comptime width = simd_width_of[dtype]()
    var i = 0
    while i + width <= n:
        x.unsafe_store(i, x.unsafe_load[width=width](i) * factor)
        i += width
    while i < n:
        x[unsafe_offset=i] *= factor
        i += 1


@always_inline
def divide[dtype: DType, //](x: Address[dtype], divisor: Scalar[dtype], n: Int):
    """`x /= divisor`."""
    comptime width = simd_width_of[dtype]()
    var i = 0
    while i + width <= n:
        x.unsafe_store(i, x.unsafe_load[width=width](i) / divisor)
        i += width
    while i < n:
        x[unsafe_offset=i] /= divisor
        i += 1


@always_inline
def copy[dtype: DType, //](to: Address[dtype], source: Address[dtype], n: Int):
    """Copies `n` numbers."""
    comptime width = simd_width_of[dtype]()
    var i = 0
    while i + width <= n:
        to.unsafe_store(i, source.unsafe_load[width=width](i))
        i += width
    while i < n:
        to[unsafe_offset=i] = source[unsafe_offset=i]
        i += 1


@always_inline
def exchange[dtype: DType, //](a: Address[dtype], b: Address[dtype], n: Int):
    """Exchanges `n` numbers."""
    comptime width = simd_width_of[dtype]()
    var i = 0
    while i + width <= n:
        var v = a.unsafe_load[width=width](i)
        a.unsafe_store(i, b.unsafe_load[width=width](i))
        b.unsafe_store(i, v)
        i += width
    while i < n:
        swap(a[unsafe_offset=i], b[unsafe_offset=i])
        i += 1


@always_inline
def length[dtype: DType, //](x: Address[dtype], step: Int, n: Int) -> Scalar[dtype]:
    """The Euclidean norm of `n` numbers `step` apart, without overflow."""
    comptime assert dtype.is_floating_point(), "float only"
    var most = Scalar[dtype](0)
    var total = Scalar[dtype](0)
    for i in range(n):
        var v = abs(x[unsafe_offset = i * step])
        most = v if v > most else most
        total = v.fma(v, total)
    comptime low = 1e-30 if dtype == DType.float32 else 1e-280
    if (total > Scalar[dtype](low) and isfinite(total)) or most == 0:
        return sqrt(total)
    if not isfinite(most):
        return total
    total = 0
    for i in range(n):
        var v = x[unsafe_offset = i * step] / most
        total = v.fma(v, total)
    return most * sqrt(total)


def make_reflector[
    dtype: DType, //
](alpha: Address[dtype], x: Address[dtype], step: Int, n: Int) -> Scalar[dtype]:
    """LAPACK's `larfg`: `tau` of the reflection `I - tau v v^T` that takes `(alpha, x)` to
    `(beta, 0)`. `beta` replaces `alpha`; `v` but for its leading 1 replaces the `n` numbers
    of `x`, `step` apart."""
    comptime assert dtype.is_floating_point(), "float only"
    var rest = length(x, step, n)
    if rest == 0:
        return 0
    var a = alpha[]
    # Without overflow.
    var large = max(abs(a), rest)
    var beta = large * sqrt((a / large) * (a / large) + (rest / large) * (rest / large))
    if a > 0 or (a == 0 and 1 / a > 0):
        beta = -beta
    var tau = (beta - a) / beta
    var difference = a - beta
    for i in range(n):
        x[unsafe_offset = i * step] /= difference
    alpha[] = beta
    return tau


@no_inline
def subtract_product[
    dtype: DType, //, target: StaticString
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[dtype],
    b: Matrix[dtype],
    c: Address[dtype],
    row: Int,
    threads: Int,
):
    """`c[m, n] -= a[m, k] b[k, n]`."""
    if m <= 0 or n <= 0 or k <= 0:
        return
    comptime if target == "cpu":
        var tasks = min(threads, m * n * k // GRAIN)
        if tasks <= 1:
            _subtract_product(m, n, k, a, b, c, row)
            return
        # Whole tiles a part.
        var tall = m >= n
        var length = m if tall else n

        def work(lower: Int, upper: Int) {
            var m, var n, var k, var a, var b, var c, var row, var tall, var length
        }:
            var start = lower * TILE
            var count = min(upper * TILE, length) - start
            if count <= 0:
                return
            if tall:
                var part = a.from_(start, 0)
                _subtract_product(count, n, k, part, b, c.unsafe_offset(start * row), row)
            else:
                var part = b.from_(0, start)
                _subtract_product(m, count, k, a, part, c.unsafe_offset(start), row)

        in_ranges(work, ceildiv(length, TILE), tasks)
    else:
        _by_rows(m, n, k, a, b, c, row)


@always_inline
def _by_rows[
    dtype: DType, //
](
    m: Int, n: Int, k: Int, a: Matrix[dtype], b: Matrix[dtype], c: Address[dtype], row: Int
):
    if b.column == 1:
        for i in range(m):
            for p in range(k):
                add_scaled(c.unsafe_offset(i * row), b.at(p, 0), -a.at(i, p)[], n)
        return
    for i in range(m):
        for j in range(n):
            var total = c[unsafe_offset = i * row + j]
            for p in range(k):
                total -= a.at(i, p)[] * b.at(p, j)[]
            c[unsafe_offset = i * row + j] = total


@no_inline
def _subtract_product[
    dtype: DType, //
](
    m: Int, n: Int, k: Int, a: Matrix[dtype], b: Matrix[dtype], c: Address[dtype], row: Int
):
    comptime width = simd_width_of[dtype]()
    if m * n * k <= 4096 or (m <= 2 and b.column == 1):
        _by_rows(m, n, k, a, b, c, row)
        return
    var left = List[Scalar[dtype]](unsafe_uninit_length=left_size(m, min(DEPTH, k)) + width)
    var right = List[Scalar[dtype]](
        unsafe_uninit_length=right_size[dtype](n, min(DEPTH, k)) + width
    )
    var lp = untracked(left.unsafe_ptr())
    var rp = untracked(right.unsafe_ptr())
    comptime panel = WIDE * width
    for j in range(0, n, COLUMNS):
        var columns = min(COLUMNS, n - j)
        for p in range(0, k, DEPTH):
            var depth = min(DEPTH, k - p)
            pack[panel](rp, b.from_(p, j).turned(), columns, depth)
            scale(rp, Scalar[dtype](-1), ceildiv(columns, panel) * panel * depth)
            packed_product(
                m, columns, depth, a.from_(0, p), lp, rp, c.unsafe_offset(j), row, True
            )
    _ = left^
    _ = right^


def solve_lower[
    dtype: DType, //, target: StaticString
](
    t: Matrix[dtype], unit: Bool, n: Int, x: Address[dtype], row: Int, k: Int, threads: Int
):
    """Solves `t y = x` with a lower triangular `t[n, n]`; `y` replaces `x[n, k]`."""
    comptime if target == "cpu":
        if n > SMALL and k >= NARROW:
            var half = n // 2
            solve_lower[target](t, unit, half, x, row, k, threads)
            var below = x.unsafe_offset(half * row)
            subtract_product[target](
                n - half, k, half, t.from_(half, 0), Matrix(x, row, 1), below, row, threads
            )
            solve_lower[target](t.from_(half, half), unit, n - half, below, row, k, threads)
            return
    for i in range(n):
        var line = x.unsafe_offset(i * row)
        if k == 1 and row == 1:
            if t.column == 1:
                line[] -= dot(t.at(i, 0), x, i)
            if not unit:
                line[] /= t.at(i, i)[]
            if t.column != 1:
                for h in range(i + 1, n):
                    x[unsafe_offset=h] -= t.at(h, i)[] * line[]
            continue
        for j in range(i):
            add_scaled(line, x.unsafe_offset(j * row), -t.at(i, j)[], k)
        if not unit:
            divide(line, t.at(i, i)[], k)


def solve_upper[
    dtype: DType, //, target: StaticString
](
    t: Matrix[dtype], unit: Bool, n: Int, x: Address[dtype], row: Int, k: Int, threads: Int
):
    """Solves `t y = x` with an upper triangular `t[n, n]`; `y` replaces `x[n, k]`."""
    comptime if target == "cpu":
        if n > SMALL and k >= NARROW:
            var half = n // 2
            var below = x.unsafe_offset(half * row)
            solve_upper[target](t.from_(half, half), unit, n - half, below, row, k, threads)
            subtract_product[target](
                half, k, n - half, t.from_(0, half), Matrix(below, row, 1), x, row, threads
            )
            solve_upper[target](t, unit, half, x, row, k, threads)
            return
    for i in reversed(range(n)):
        var line = x.unsafe_offset(i * row)
        if k == 1 and row == 1:
            if t.column == 1:
                line[] -= dot(t.at(i, i + 1), x.unsafe_offset(i + 1), n - i - 1)
            if not unit:
                line[] /= t.at(i, i)[]
            if t.column != 1:
                for h in range(i):
                    x[unsafe_offset=h] -= t.at(h, i)[] * line[]
            continue
        for j in range(i + 1, n):
            add_scaled(line, x.unsafe_offset(j * row), -t.at(i, j)[], k)
        if not unit:
            divide(line, t.at(i, i)[], k)


def solve_from_right[
    dtype: DType, //, target: StaticString
](
    t: Matrix[dtype], n: Int, x: Address[dtype], row: Int, m: Int, threads: Int
):
    """Solves `y t^T = x` with a lower triangular `t[n, n]`; `y` replaces `x[m, n]`."""
    comptime if target == "cpu":
        if n > SMALL:
            var half = n // 2
            solve_from_right[target](t, half, x, row, m, threads)
            var right = x.unsafe_offset(half)
            subtract_product[target](
                m,
                n - half,
                half,
                Matrix(x, row, 1),
                t.from_(half, 0).turned(),
                right,
                row,
                threads,
            )
            solve_from_right[target](t.from_(half, half), n - half, right, row, m, threads)
            return
    for i in range(m):
        var line = x.unsafe_offset(i * row)
        for j in range(n):
            var sum = line[unsafe_offset=j] - dot(line, t.at(j, 0), j)
            line[unsafe_offset=j] = sum / t.at(j, j)[]
