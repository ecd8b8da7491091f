"""Factorizations of matrices `[batch, rows, columns]` and the systems they solve; signs, pivots
and `info` are LAPACK's."""

from extensibility import InputTensor, OutputTensor, register
from extensibility.managed_tensor_slice import _MutableInputTensor
from max.gpu.host import DeviceContext
from std.math import log, sqrt
from std.utils.numerics import isnan

from ..core.lines import each_line
from ..core.memory import Address, untracked
from ..gemm.panels import Matrix
from .dense import (
    add_scaled,
    copy,
    dot,
    each_matrix,
    exchange,
    solve_from_right,
    solve_lower,
    solve_upper,
    subtract_product,
)
from .failures import check

# Columns that are factored one by one.
comptime PANEL = 8
# Rows of a triangle that are factored one by one.
comptime TRIANGLE = 24
# Rows of a product with its own transpose at a time: what is above the diagonal is left out.
comptime STRIPE = 128


def cholesky[
    dtype: DType, //, target: StaticString
](a: Address[dtype], row: Int, n: Int, threads: Int) -> Int:
    """`a = l l^T` of the lower triangle, in place. Returns 0, or the order of the first minor
    that is not positive definite."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime if target == "cpu":
        if n > TRIANGLE:
            var half = n // 2
            var info = cholesky[target](a, row, half, threads)
            if info != 0:
                return info
            var below = a.unsafe_offset(half * row)
            solve_from_right[target](
                Matrix(a, row, 1), half, below, row, n - half, threads
            )
            for i in range(0, n - half, STRIPE):
                var rows = min(STRIPE, n - half - i)
                subtract_product[target](
                    rows,
                    i + rows,
                    half,
                    Matrix(below.unsafe_offset(i * row), row, 1),
                    Matrix(below, row, 1).turned(),
                    below.unsafe_offset(i * row + half),
                    row,
                    threads,
                )
            info = cholesky[target](below.unsafe_offset(half), row, n - half, threads)
            return info + half if info != 0 else 0
    for i in range(n):
        var line = a.unsafe_offset(i * row)
        for j in range(i):
            var other = a.unsafe_offset(j * row)
            var sum = line[unsafe_offset=j] - dot(line, other, j)
            line[unsafe_offset=j] = sum / other[unsafe_offset=j]
        var square = line[unsafe_offset=i] - dot(line, line, i)
        if square <= 0 or isnan(square):
            line[unsafe_offset=i] = square
            return i + 1
        line[unsafe_offset=i] = sqrt(square)
    return 0


@register("tmb_cholesky")
struct Cholesky:
    """The lower triangular factor of symmetric matrices, from their lower triangle, or (`upper`)
    the upper triangular one from the upper triangle; and LAPACK's `info`."""

    @staticmethod
    def execute[
        dtype: DType, //, upper: Bool, target: StaticString
    ](
        factor: OutputTensor[dtype=dtype, rank=3, ...],
        info: OutputTensor[dtype=DType.int32, rank=1, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var n = a.dim_size[2]()
        var source = untracked(a.unsafe_ptr())
        var result = untracked(factor.unsafe_ptr())
        var found = untracked(info.unsafe_ptr())

        @always_inline
        def work(item: Int, threads: Int) {var source, var result, var found, var n}:
            var from_ = Matrix(source.unsafe_offset(item * n * n), n, 1)
            comptime if upper:
                from_ = from_.turned()
            var l = result.unsafe_offset(item * n * n)
            for i in range(n):
                for j in range(i + 1):
                    l[unsafe_offset = i * n + j] = from_.at(i, j)[]
            found[unsafe_offset=item] = Int32(cholesky[target](l, n, n, threads))
            for i in range(n):
                for j in range(i + 1, n):
                    comptime if upper:
                        l[unsafe_offset = i * n + j] = l[unsafe_offset = j * n + i]
                        l[unsafe_offset = j * n + i] = 0
                    else:
                        l[unsafe_offset = i * n + j] = 0

        each_matrix[target=target](work, a.dim_size[0](), n * n * n // 3 + 1, ctx)


@always_inline
def _exchange_rows[
    dtype: DType, //
](
    a: Address[dtype],
    row: Int,
    columns: Int,
    pivots: Address[DType.int32],
    first: Int,
    end: Int,
):
    """Exchanges row `i` with row `pivots[i] - 1`, for `i` from `first` to `end`."""
    for i in range(first, end):
        var other = Int(pivots[unsafe_offset=i]) - 1
        if other != i:
            exchange(a.unsafe_offset(i * row), a.unsafe_offset(other * row), columns)


def lu[
    dtype: DType, //, target: StaticString
](
    a: Address[dtype],
    row: Int,
    m: Int,
    n: Int,
    pivots: Address[DType.int32],
    pivoting: Bool,
    threads: Int,
) -> Int:
    """`p a = l u` with partial pivoting, in place. Pivots count from 1. Returns 0, or the first
    column whose pivot is zero.

    Halves of the columns, after Toledo, "Locality of Reference in LU Decomposition with Partial
    Pivoting": the products do nearly all the work."""
    comptime assert dtype.is_floating_point(), "float only"
    var k = min(m, n)
    comptime if target == "cpu":
        if k > PANEL:
            var half = k // 2
            var right = a.unsafe_offset(half)
            var corner = a.unsafe_offset(half * row + half)
            var info = lu[target](a, row, m, half, pivots, pivoting, threads)
            _exchange_rows(right, row, n - half, pivots, 0, half)
            solve_lower[target](
                Matrix(a, row, 1), True, half, right, row, n - half, threads
            )
            subtract_product[target](
                m - half,
                n - half,
                half,
                Matrix(a.unsafe_offset(half * row), row, 1),
                Matrix(right, row, 1),
                corner,
                row,
                threads,
            )
            var rest = lu[target](
                corner, row, m - half, n - half, pivots.unsafe_offset(half), pivoting, threads
            )
            for i in range(half, k):
                pivots[unsafe_offset=i] += Int32(half)
            _exchange_rows(a, row, half, pivots, half, k)
            if info == 0 and rest != 0:
                info = rest + half
            return info
    var info = 0
    for j in range(k):
        var best = j
        if pivoting:
            var most = abs(a[unsafe_offset = j * row + j])
            for i in range(j + 1, m):
                var v = abs(a[unsafe_offset = i * row + j])
                if v > most:
                    most = v
                    best = i
        pivots[unsafe_offset=j] = Int32(best + 1)
        var line = a.unsafe_offset(j * row)
        if best != j:
            exchange(line, a.unsafe_offset(best * row), n)
        var pivot = line[unsafe_offset=j]
        if pivot == 0:
            info = j + 1 if info == 0 else info
            continue
        for i in range(j + 1, m):
            var other = a.unsafe_offset(i * row)
            var factor = other[unsafe_offset=j] / pivot
            other[unsafe_offset=j] = factor
            add_scaled(
                other.unsafe_offset(j + 1), line.unsafe_offset(j + 1), -factor, n - j - 1
            )
    return info


@register("tmb_lu")
struct LU:
    """`P L U`: both triangles in one matrix, pivots as LAPACK counts them, and its `info`."""

    @staticmethod
    def execute[
        dtype: DType, //, pivoting: Bool, target: StaticString
    ](
        factors: OutputTensor[dtype=dtype, rank=3, ...],
        pivots: OutputTensor[dtype=DType.int32, rank=2, ...],
        info: OutputTensor[dtype=DType.int32, rank=1, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var m = a.dim_size[1]()
        var n = a.dim_size[2]()
        var k = min(m, n)
        var source = untracked(a.unsafe_ptr())
        var result = untracked(factors.unsafe_ptr())
        var order = untracked(pivots.unsafe_ptr())
        var found = untracked(info.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {var source, var result, var order, var found, var m, var n, var k}:
            var to = result.unsafe_offset(item * m * n)
            copy(to, source.unsafe_offset(item * m * n), m * n)
            var failed = lu[target](
                to, n, m, n, order.unsafe_offset(item * k), pivoting, threads
            )
            found[unsafe_offset=item] = Int32(failed)

        each_matrix[target=target](work, a.dim_size[0](), m * n * k + 1, ctx)


def _check_pivots(pivots: Address[DType.int32], count: Int, rows: Int) raises:
    for i in range(count):
        var v = Int(pivots[unsafe_offset=i])
        if v < 1 or v > rows:
            raise Error("pivots passed to lu_unpack or lu_solve must be between 1 and ", rows)


@register("tmb_permutation")
struct Permutation:
    """Which row of the matrix each row of its permuted one was, from LAPACK's pivots."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        order: OutputTensor[dtype=DType.int64, rank=2, ...],
        pivots: InputTensor[dtype=DType.int32, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        var m = order.dim_size[1]()
        var k = pivots.dim_size[1]()
        var given = untracked(pivots.unsafe_ptr())
        var result = untracked(order.unsafe_ptr())
        comptime if target == "cpu":
            _check_pivots(given, pivots.size(), m)

        @always_inline
        def work(item: Int) {var given, var result, var m, var k}:
            var to = result.unsafe_offset(item * m)
            for i in range(m):
                to[unsafe_offset=i] = Int64(i)
            for i in range(min(k, m)):
                # On a GPU nothing can raise.
                var other = max(0, min(Int(given[unsafe_offset = item * k + i]) - 1, m - 1))
                swap(to[unsafe_offset=i], to[unsafe_offset=other])

        each_line[target=target](work, order.dim_size[0](), m, ctx)


@register("tmb_lu_solve")
struct LUSolve:
    """`x` of `a x = b`, or of `a^T x = b`, from the factors of `a`."""

    @staticmethod
    def execute[
        dtype: DType, //, transposed: Bool, target: StaticString
    ](
        x: OutputTensor[dtype=dtype, rank=3, ...],
        factors: InputTensor[dtype=dtype, rank=3, ...],
        pivots: InputTensor[dtype=DType.int32, rank=2, ...],
        b: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var n = b.dim_size[1]()
        var k = b.dim_size[2]()
        var ap = untracked(factors.unsafe_ptr())
        var order = untracked(pivots.unsafe_ptr())
        var source = untracked(b.unsafe_ptr())
        var result = untracked(x.unsafe_ptr())
        comptime if target == "cpu":
            _check_pivots(order, pivots.size(), n)

        @always_inline
        def work(
            item: Int, threads: Int
        ) {var ap, var order, var source, var result, var n, var k}:
            var t = Matrix(ap.unsafe_offset(item * n * n), n, 1)
            var to = result.unsafe_offset(item * n * k)
            var at = order.unsafe_offset(item * n)
            copy(to, source.unsafe_offset(item * n * k), n * k)
            comptime if transposed:
                solve_lower[target](t.turned(), False, n, to, k, k, threads)
                solve_upper[target](t.turned(), True, n, to, k, k, threads)
                for i in reversed(range(n)):
                    _exchange_rows(to, k, k, at, i, i + 1)
            else:
                _exchange_rows(to, k, k, at, 0, n)
                solve_lower[target](t, True, n, to, k, k, threads)
                solve_upper[target](t, False, n, to, k, k, threads)

        each_matrix[target=target](work, b.dim_size[0](), n * n * k + 1, ctx)


@register("tmb_determinant")
struct Determinant:
    """The determinant, its sign and the logarithm of its size, from the factors."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        determinant: OutputTensor[dtype=dtype, rank=1, ...],
        sign: OutputTensor[dtype=dtype, rank=1, ...],
        logarithm: OutputTensor[dtype=dtype, rank=1, ...],
        factors: InputTensor[dtype=dtype, rank=3, ...],
        pivots: InputTensor[dtype=DType.int32, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var n = factors.dim_size[2]()
        var ap = untracked(factors.unsafe_ptr())
        var order = untracked(pivots.unsafe_ptr())
        var product = untracked(determinant.unsafe_ptr())
        var signs = untracked(sign.unsafe_ptr())
        var logs = untracked(logarithm.unsafe_ptr())

        @always_inline
        def work(
            item: Int,
        ) {var ap, var order, var product, var signs, var logs, var n}:
            var value = Scalar[dtype](1)
            var direction = Scalar[dtype](1)
            var total = Scalar[dtype](0)
            for i in range(n):
                var v = ap[unsafe_offset = (item * n + i) * n + i]
                value *= v
                if isnan(v):
                    total = v
                elif v == 0:
                    total += Scalar[dtype](-1) / Scalar[dtype](0)
                else:
                    total += log(abs(v))
                # torch's sign of NaN is 0.
                if isnan(v) or v == 0:
                    direction *= 0
                elif v < 0:
                    direction = -direction
                if Int(order[unsafe_offset = item * n + i]) != i + 1:
                    value = -value
                    direction = -direction
            product[unsafe_offset=item] = value
            signs[unsafe_offset=item] = direction
            logs[unsafe_offset=item] = total

        each_line[target=target](work, factors.dim_size[0](), n * 16 + 1, ctx)


@register("tmb_zero_on_diagonal")
struct ZeroOnDiagonal:
    """The first zero on the diagonal of square matrices, counted from 1; 0 for none."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        info: OutputTensor[dtype=DType.int32, rank=1, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var n = a.dim_size[2]()
        var ap = untracked(a.unsafe_ptr())
        var found = untracked(info.unsafe_ptr())

        @always_inline
        def work(item: Int) {var ap, var found, var n}:
            var first = 0
            for i in reversed(range(n)):
                if ap[unsafe_offset = (item * n + i) * n + i] == 0:
                    first = i + 1
            found[unsafe_offset=item] = Int32(first)

        each_line[target=target](work, a.dim_size[0](), n, ctx)


@register("tmb_solve_triangular")
struct SolveTriangular:
    """`x` of `op(a) x = b`, of the `upper` or the lower triangle of `a`."""

    @staticmethod
    def execute[
        dtype: DType, //, upper: Bool, transposed: Bool, unit: Bool, target: StaticString
    ](
        x: OutputTensor[dtype=dtype, rank=3, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        b: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var n = b.dim_size[1]()
        var k = b.dim_size[2]()
        var ap = untracked(a.unsafe_ptr())
        var source = untracked(b.unsafe_ptr())
        var result = untracked(x.unsafe_ptr())

        @always_inline
        def work(item: Int, threads: Int) {var ap, var source, var result, var n, var k}:
            var t = Matrix(ap.unsafe_offset(item * n * n), n, 1)
            comptime if transposed:
                t = t.turned()
            var to = result.unsafe_offset(item * n * k)
            copy(to, source.unsafe_offset(item * n * k), n * k)
            comptime if upper != transposed:
                solve_upper[target](t, unit, n, to, k, k, threads)
            else:
                solve_lower[target](t, unit, n, to, k, k, threads)

        each_matrix[target=target](work, b.dim_size[0](), n * n * k // 2 + 1, ctx)


@register("tmb_check_info")
struct CheckInfo:
    """Raises if an `info` is not 0: `text`, in which "#" stands for the first of them and "@" for
    where it is. Called in place, so that it stays although nothing uses a result."""

    @staticmethod
    def execute[
        text: StaticString, single: Bool, target: StaticString
    ](
        kept: _MutableInputTensor[dtype=DType.int32, rank=1, ...],
        info: InputTensor[dtype=DType.int32, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "only the CPU raises"
        var given = untracked(info.unsafe_ptr())
        check(given, info.dim_size[0](), text, single)
