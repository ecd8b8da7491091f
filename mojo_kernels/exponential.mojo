"""The exponential of matrices: Taylor's polynomial of degree 16 of `a / 2^s`, by Paterson and
Stockmeyer's scheme, squared `s` times (Higham, "Functions of Matrices", 10.3)."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.utils.numerics import isfinite

from .dense import each_matrix, subtract_product
from .panels import Address, Matrix

# Up to this norm the rest of the series is less than a rounding of float64 beside the result.
comptime NORM = 0.75


def _minus_product[
    dtype: DType, //, target: StaticString
](to: Address[dtype], a: Address[dtype], b: Address[dtype], n: Int, threads: Int):
    """`to = -a b`."""
    for i in range(n * n):
        to[unsafe_offset=i] = 0
    subtract_product[target](n, n, n, Matrix(a, n, 1), Matrix(b, n, 1), to, n, threads)


def exponential[
    dtype: DType, //, target: StaticString
](a: Address[dtype], result: Address[dtype], space: Address[dtype], n: Int, threads: Int):
    """`result = exp(a)`; `space` holds five matrices."""
    comptime assert dtype.is_floating_point(), "float only"
    var size = n * n
    var x = space
    var x2 = space.unsafe_offset(size)
    var x3 = space.unsafe_offset(2 * size)
    var x4 = space.unsafe_offset(3 * size)
    var p = space.unsafe_offset(4 * size)
    var norm = Scalar[dtype](0)
    for j in range(n):
        var sum = Scalar[dtype](0)
        for i in range(n):
            sum += abs(a[unsafe_offset = i * n + j])
        norm = sum if sum > norm or not isfinite(sum) else norm
        if not isfinite(norm):
            break
    var squarings = 0
    var factor = Scalar[dtype](1)
    if isfinite(norm):
        while norm * factor > Scalar[dtype](NORM):
            factor /= 2
            squarings += 1
    for i in range(size):
        x[unsafe_offset=i] = a[unsafe_offset=i] * factor
    _minus_product[target](x2, x, x, n, threads)
    for i in range(size):
        x2[unsafe_offset=i] = -x2[unsafe_offset=i]
    _minus_product[target](x3, x2, x, n, threads)
    for i in range(size):
        x3[unsafe_offset=i] = -x3[unsafe_offset=i]
    _minus_product[target](x4, x2, x2, n, threads)
    # The terms of degree 12 to 16, then four more each time; c is 1 / degree!.
    var c = Scalar[dtype](1.0 / 20922789888000.0)
    for i in range(size):
        x4[unsafe_offset=i] = -x4[unsafe_offset=i]
        p[unsafe_offset=i] = c * x4[unsafe_offset=i]
    for turn in range(4):
        var degree = 12 - 4 * turn
        var c3 = c * Scalar[dtype](degree + 4)
        var c2 = c3 * Scalar[dtype](degree + 3)
        var c1 = c2 * Scalar[dtype](degree + 2)
        c = c1 * Scalar[dtype](degree + 1)
        for i in range(size):
            p[unsafe_offset=i] += (
                c3 * x3[unsafe_offset=i]
                + c2 * x2[unsafe_offset=i]
                + c1 * x[unsafe_offset=i]
            )
        for i in range(n):
            p[unsafe_offset = i * n + i] += c
        if turn == 3:
            break
        _minus_product[target](result, p, x4, n, threads)
        for i in range(size):
            p[unsafe_offset=i] = -result[unsafe_offset=i]
    var from_ = p
    var to = x
    for _ in range(squarings):
        _minus_product[target](to, from_, from_, n, threads)
        swap(from_, to)
    # A product of two negative ones has the right sign before it is negated again.
    for i in range(size):
        var v = from_[unsafe_offset=i]
        result[unsafe_offset=i] = -v if squarings > 0 else v


@register("tmb_matrix_exp")
struct MatrixExp:
    """Exponentials of square matrices. The last output is scratch."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        y: OutputTensor[dtype=dtype, rank=3, ...],
        spare: OutputTensor[dtype=dtype, rank=4, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var n = a.dim_size[2]()
        var source = a.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var result = y.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var space = spare.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()

        @always_inline
        def work(item: Int, threads: Int) {var source, var result, var space, var n}:
            exponential[target](
                source.unsafe_offset(item * n * n),
                result.unsafe_offset(item * n * n),
                space.unsafe_offset(item * 5 * n * n),
                n,
                threads,
            )

        each_matrix[target=target](work, a.dim_size[0](), 20 * n * n * n + 1, ctx)
