"""Exponentials of matrices `[batch, n, n]`: scaling, a Taylor polynomial, and squaring."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.utils.numerics import isfinite, nan

from ..core.memory import Address, untracked
from ..gemm.panels import Matrix
from .dense import copy, each_matrix, scale, subtract_product

# Matrices that the work on one takes beside its result.
comptime SCRATCH = 5


@always_inline
def _norm[dtype: DType, //](a: Address[dtype], n: Int) -> Scalar[dtype]:
    """The largest sum of absolute values of a column; NaN if one is NaN."""
    var largest = Scalar[dtype](0)
    for j in range(n):
        var sum = Scalar[dtype](0)
        for i in range(n):
            sum += abs(a[unsafe_offset = i * n + j])
        if not sum <= largest:
            largest = sum
    return largest


@always_inline
def _negative_product[
    dtype: DType, //, target: StaticString
](c: Address[dtype], a: Address[dtype], b: Address[dtype], n: Int, threads: Int):
    """`c = -a b`."""
    for i in range(n * n):
        c[unsafe_offset=i] = 0
    subtract_product[target](n, n, n, Matrix(a, n, 1), Matrix(b, n, 1), c, n, threads)


@always_inline
def _add_terms[
    dtype: DType, //
](
    to: Address[dtype],
    first: Int,
    a: Address[dtype],
    negative2: Address[dtype],
    a3: Address[dtype],
    n: Int,
):
    """Adds `a**k / (first + k)!` for `k` from 0 to 3; `negative2` is `-a**2`."""
    var factor = Scalar[dtype](1)
    for k in range(2, first + 1):
        factor /= Scalar[dtype](k)
    var f1 = factor / Scalar[dtype](first + 1)
    var f2 = f1 / Scalar[dtype](first + 2)
    var f3 = f2 / Scalar[dtype](first + 3)
    for i in range(n * n):
        to[unsafe_offset=i] += (
            f3 * a3[unsafe_offset=i] - f2 * negative2[unsafe_offset=i]
        ) + f1 * a[unsafe_offset=i]
    for i in range(n):
        to[unsafe_offset = i * n + i] += factor


def _exponential[
    dtype: DType, //, target: StaticString
](result: Address[dtype], a: Address[dtype], scratch: Address[dtype], n: Int, threads: Int):
    """The polynomial of degree 16 of `a / 2**s`, by Paterson and Stockmeyer's scheme, squared `s`
    times. The bounds of its norm are those of Al-Mohy and Higham, "Computing the action of the
    matrix exponential" (2011), for degree 15."""
    comptime BOUND = Scalar[dtype](2.2 if dtype == DType.float32 else 0.64)
    var size = n * n
    var norm = _norm(a, n)
    if not isfinite(norm):
        for i in range(size):
            result[unsafe_offset=i] = nan[dtype]()
        return
    var squarings = 0
    while norm > BOUND:
        norm *= 0.5
        squarings += 1
    var x = scratch
    var negative2 = scratch.unsafe_offset(size)
    var x3 = scratch.unsafe_offset(2 * size)
    var negative4 = scratch.unsafe_offset(3 * size)
    var other = scratch.unsafe_offset(4 * size)
    copy(x, a, size)
    for _ in range(squarings):
        scale(x, 0.5, size)
    _negative_product[target](negative2, x, x, n, threads)
    _negative_product[target](x3, x, negative2, n, threads)
    _negative_product[target](negative4, negative2, negative2, n, threads)
    # The last coefficient is 1 / 16!.
    for i in range(size):
        result[unsafe_offset=i] = negative4[unsafe_offset=i] * Scalar[dtype](
            -4.779477332387385e-14
        )
    _add_terms(result, 12, x, negative2, x3, n)
    for block in range(3):
        # `result a**4` as `0 - result (-a**4)`.
        _negative_product[target](other, result, negative4, n, threads)
        copy(result, other, size)
        _add_terms(result, 8 - 4 * block, x, negative2, x3, n)
    for _ in range(squarings):
        # Minus its square, and so from then on.
        _negative_product[target](other, result, result, n, threads)
        copy(result, other, size)
    if squarings > 0:
        for i in range(size):
            result[unsafe_offset=i] = -result[unsafe_offset=i]


@register("tmb_matrix_exponential")
struct MatrixExponential:
    """The second output is scratch: `SCRATCH` matrices for each."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        scratch: OutputTensor[dtype=dtype, rank=3, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var n = a.dim_size[2]()
        var source = untracked(a.unsafe_ptr())
        var result = untracked(output.unsafe_ptr())
        var space = untracked(scratch.unsafe_ptr())

        @always_inline
        def work(item: Int, threads: Int) {var source, var result, var space, var n}:
            var at = item * n * n
            _exponential[target](
                result.unsafe_offset(at),
                source.unsafe_offset(at),
                space.unsafe_offset(SCRATCH * at),
                n,
                threads,
            )

        each_matrix[target=target](work, a.dim_size[0](), 16 * n * n * n + 1, ctx)
