"""Symmetric indefinite matrices: `L D L^T` with LAPACK's pivots (Bunch and Kaufman, "Some Stable
Methods for Calculating Inertia and Solving Symmetric Linear Systems")."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.utils.numerics import isnan

from ..core.memory import Address, untracked
from .dense import add_scaled, add_two_scaled, divide, each_matrix, exchange
from .failures import check

# (1 + sqrt(17)) / 8
comptime ALPHA = 0.6403882032022076


def factor[
    dtype: DType, //
](a: Address[dtype], n: Int, pivots: Address[DType.int32]) -> Int:
    """LAPACK's `sytf2` of the lower triangle, in place; zeros above it."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime alpha = Scalar[dtype](ALPHA)
    var info = 0
    var k = 0
    while k < n:
        var step = 1
        var corner = a[unsafe_offset = k * n + k]
        var size = abs(corner)
        var most = Scalar[dtype](0)
        var at = k
        for i in range(k + 1, n):
            var v = abs(a[unsafe_offset = i * n + k])
            if v > most or i == k + 1:
                most = v
                at = i
        var pivot = k
        if max(size, most) == 0 or isnan(size):
            info = k + 1 if info == 0 else info
        else:
            if size < alpha * most:
                var widest = Scalar[dtype](0)
                for j in range(k, at):
                    widest = max(widest, abs(a[unsafe_offset = at * n + j]))
                for i in range(at + 1, n):
                    widest = max(widest, abs(a[unsafe_offset = i * n + at]))
                if size >= alpha * most * (most / widest):
                    pivot = k
                elif abs(a[unsafe_offset = at * n + at]) >= alpha * widest:
                    pivot = at
                else:
                    pivot = at
                    step = 2
            var last = k + step - 1
            if pivot != last:
                for i in range(pivot + 1, n):
                    swap(a[unsafe_offset = i * n + last], a[unsafe_offset = i * n + pivot])
                for i in range(last + 1, pivot):
                    swap(a[unsafe_offset = i * n + last], a[unsafe_offset = pivot * n + i])
                swap(
                    a[unsafe_offset = last * n + last],
                    a[unsafe_offset = pivot * n + pivot],
                )
                if step == 2:
                    swap(a[unsafe_offset = last * n + k], a[unsafe_offset = pivot * n + k])
            if step == 1:
                var d = 1 / a[unsafe_offset = k * n + k]
                # The column, side by side, in the free triangle.
                var column = a.unsafe_offset(k * n)
                for i in range(k + 1, n):
                    var v = a[unsafe_offset = i * n + k]
                    column[unsafe_offset=i] = v
                    add_scaled(
                        a.unsafe_offset(i * n + k + 1),
                        column.unsafe_offset(k + 1),
                        -d * v,
                        i - k,
                    )
                    a[unsafe_offset = i * n + k] = d * v
            else:
                var d21 = a[unsafe_offset = (k + 1) * n + k]
                var d11 = a[unsafe_offset = (k + 1) * n + k + 1] / d21
                var d22 = a[unsafe_offset = k * n + k] / d21
                d21 = 1 / (d11 * d22 - 1) / d21
                var one = a.unsafe_offset(k * n)
                var two = a.unsafe_offset((k + 1) * n)
                for i in range(k + 2, n):
                    var x = a[unsafe_offset = i * n + k]
                    var y = a[unsafe_offset = i * n + k + 1]
                    one[unsafe_offset=i] = x
                    two[unsafe_offset=i] = y
                    var first = d21 * (d11 * x - y)
                    var second = d21 * (d22 * y - x)
                    add_two_scaled(
                        a.unsafe_offset(i * n + k + 2),
                        one.unsafe_offset(k + 2),
                        -first,
                        two.unsafe_offset(k + 2),
                        -second,
                        i - k - 1,
                    )
                    a[unsafe_offset = i * n + k] = first
                    a[unsafe_offset = i * n + k + 1] = second
        if step == 1:
            pivots[unsafe_offset=k] = Int32(pivot + 1)
        else:
            pivots[unsafe_offset=k] = Int32(-(pivot + 1))
            pivots[unsafe_offset = k + 1] = Int32(-(pivot + 1))
        k += step
    for i in range(n):
        for j in range(i + 1, n):
            a[unsafe_offset = i * n + j] = 0
    return info


@always_inline
def _row(pivot: Int32, n: Int) -> Int:
    """The row that a pivot of either sign names, kept inside."""
    return max(0, min(abs(Int(pivot)) - 1, n - 1))


def solve[
    dtype: DType, //
](
    a: Address[dtype], n: Int, pivots: Address[DType.int32], b: Address[dtype], c: Int
):
    """LAPACK's `sytrs` of the lower triangle: `b[n, c]` is replaced."""
    var k = 0
    while k < n:
        var one = pivots[unsafe_offset=k] > 0 or k + 1 == n
        var last = k if one else k + 1
        var other = _row(pivots[unsafe_offset=k], n)
        if other != last:
            exchange(b.unsafe_offset(last * c), b.unsafe_offset(other * c), c)
        for i in range(last + 1, n):
            for j in range(k, last + 1):
                add_scaled(
                    b.unsafe_offset(i * c),
                    b.unsafe_offset(j * c),
                    -a[unsafe_offset = i * n + j],
                    c,
                )
        if one:
            divide(b.unsafe_offset(k * c), a[unsafe_offset = k * n + k], c)
        else:
            var beside = a[unsafe_offset = (k + 1) * n + k]
            var first = a[unsafe_offset = k * n + k] / beside
            var second = a[unsafe_offset = (k + 1) * n + k + 1] / beside
            var scale = first * second - 1
            for j in range(c):
                var x = b[unsafe_offset = k * c + j] / beside
                var y = b[unsafe_offset = (k + 1) * c + j] / beside
                b[unsafe_offset = k * c + j] = (second * x - y) / scale
                b[unsafe_offset = (k + 1) * c + j] = (first * y - x) / scale
        k = last + 1
    k = n - 1
    while k >= 0:
        var one = pivots[unsafe_offset=k] > 0 or k == 0
        for j in range(k if one else k - 1, k + 1):
            for i in range(k + 1, n):
                add_scaled(
                    b.unsafe_offset(j * c),
                    b.unsafe_offset(i * c),
                    -a[unsafe_offset = i * n + j],
                    c,
                )
        var other = _row(pivots[unsafe_offset=k], n)
        if other != k:
            exchange(b.unsafe_offset(k * c), b.unsafe_offset(other * c), c)
        k -= 1 if one else 2


@register("tmb_ldl")
struct LDL:
    """LAPACK's `sytrf` of lower triangles: factors, pivots and `info`, which must be 0 if `checked`."""

    @staticmethod
    def execute[
        dtype: DType, //, checked: Bool, single: Bool, text: StaticString, target: StaticString
    ](
        factors: OutputTensor[dtype=dtype, rank=3, ...],
        pivots: OutputTensor[dtype=DType.int32, rank=2, ...],
        info: OutputTensor[dtype=DType.int32, rank=1, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var n = a.dim_size[2]()
        var source = untracked(a.unsafe_ptr())
        var result = untracked(factors.unsafe_ptr())
        var order = untracked(pivots.unsafe_ptr())
        var found = untracked(info.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {var source, var result, var order, var found, var n}:
            var from_ = source.unsafe_offset(item * n * n)
            var to = result.unsafe_offset(item * n * n)
            for i in range(n):
                for j in range(i + 1):
                    to[unsafe_offset = i * n + j] = from_[unsafe_offset = i * n + j]
            found[unsafe_offset=item] = Int32(factor(to, n, order.unsafe_offset(item * n)))

        each_matrix[target=target](work, a.dim_size[0](), n * n * n // 3 + 1, ctx)
        comptime if checked and target == "cpu":
            check(found, a.dim_size[0](), text, single)


@register("tmb_ldl_solve")
struct LDLSolve:
    """`x` of `a x = b` from the factors of `a`."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        x: OutputTensor[dtype=dtype, rank=3, ...],
        factors: InputTensor[dtype=dtype, rank=3, ...],
        pivots: InputTensor[dtype=DType.int32, rank=2, ...],
        b: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var n = b.dim_size[1]()
        var c = b.dim_size[2]()
        var ap = untracked(factors.unsafe_ptr())
        var order = untracked(pivots.unsafe_ptr())
        var source = untracked(b.unsafe_ptr())
        var result = untracked(x.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {var ap, var order, var source, var result, var n, var c}:
            var to = result.unsafe_offset(item * n * c)
            for i in range(n * c):
                to[unsafe_offset=i] = source[unsafe_offset = item * n * c + i]
            solve(ap.unsafe_offset(item * n * n), n, order.unsafe_offset(item * n), to, c)

        each_matrix[target=target](work, b.dim_size[0](), n * n * c + 1, ctx)
