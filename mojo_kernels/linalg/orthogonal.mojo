"""QR factorization by Householder reflections with LAPACK's signs, and products of reflections.

Blocks of reflections as `I - V T V^T`: Schreiber and Van Loan, "A Storage-Efficient WY
Representation for Products of Householder Transformations"."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.memory import Address, untracked
from ..gemm.panels import Matrix
from .dense import add_scaled, copy, each_matrix, make_reflector, subtract_product

# Reflections a block.
comptime BLOCK = 32


@always_inline
def reflect[
    dtype: DType, //
](
    v: Address[dtype],
    step: Int,
    tau: Scalar[dtype],
    c: Address[dtype],
    row: Int,
    m: Int,
    n: Int,
    spare: Address[dtype],
):
    """`c -= tau v (v^T c)` of `c[m, n]`. The first number of `v` counts as 1, the others lie
    `step` apart; `spare` holds `n` numbers."""
    if tau == 0 or n <= 0:
        return
    copy(spare, c, n)
    for i in range(1, m):
        add_scaled(spare, c.unsafe_offset(i * row), v[unsafe_offset = i * step], n)
    add_scaled(c, spare, -tau, n)
    for i in range(1, m):
        add_scaled(c.unsafe_offset(i * row), spare, -tau * v[unsafe_offset = i * step], n)


def _columns[
    dtype: DType, //
](
    a: Address[dtype], row: Int, m: Int, n: Int, tau: Address[dtype], spare: Address[dtype]
):
    """Factors `a[m, n]` a column at a time."""
    for j in range(min(m, n)):
        var corner = a.unsafe_offset(j * row + j)
        var t = make_reflector(corner, corner.unsafe_offset(row), row, m - j - 1)
        tau[unsafe_offset=j] = t
        reflect(corner, row, t, corner.unsafe_offset(1), row, m - j, n - j - 1, spare)


struct _Block[dtype: DType](Movable):
    """`V` and `T` of some reflections, and space for products with them."""

    var v: List[Scalar[Self.dtype]]
    var t: List[Scalar[Self.dtype]]
    var first: List[Scalar[Self.dtype]]
    var second: List[Scalar[Self.dtype]]

    def __init__(out self, m: Int, n: Int):
        """Space for reflections of `m` rows, applied to `n` columns."""
        self.v = List[Scalar[Self.dtype]](unsafe_uninit_length=m * BLOCK)
        self.t = List[Scalar[Self.dtype]](unsafe_uninit_length=2 * BLOCK * BLOCK)
        self.first = List[Scalar[Self.dtype]](unsafe_uninit_length=max(n, 1) * BLOCK)
        self.second = List[Scalar[Self.dtype]](unsafe_uninit_length=max(n, 1) * BLOCK)

    def load(
        mut self,
        a: Address[Self.dtype],
        row: Int,
        m: Int,
        b: Int,
        tau: Address[Self.dtype],
        threads: Int,
    ):
        """Takes the `b` reflections below the diagonal of `a`."""
        var v = untracked(self.v.unsafe_ptr())
        var t = untracked(self.t.unsafe_ptr())
        var gram = t.unsafe_offset(BLOCK * BLOCK)
        for i in range(m):
            for j in range(b):
                v[unsafe_offset = i * b + j] = (
                    a[unsafe_offset = i * row + j] if i > j else Scalar[Self.dtype](
                        1 if i == j else 0
                    )
                )
        for i in range(b * b):
            gram[unsafe_offset=i] = 0
            t[unsafe_offset=i] = 0
        var matrix = Matrix(v, b, 1)
        subtract_product["cpu"](b, b, m, matrix.turned(), matrix, gram, b, threads)
        for i in range(b):
            var scale = tau[unsafe_offset=i]
            t[unsafe_offset = i * b + i] = scale
            for h in range(i):
                var total = Scalar[Self.dtype](0)
                for j in range(h, i):
                    total += t[unsafe_offset = h * b + j] * gram[unsafe_offset = j * b + i]
                t[unsafe_offset = h * b + i] = scale * total

    def apply(
        mut self,
        c: Address[Self.dtype],
        row: Int,
        m: Int,
        n: Int,
        b: Int,
        transposed: Bool,
        threads: Int,
    ):
        """`c -= V op(T) V^T c`."""
        if n <= 0:
            return
        var first = untracked(self.first.unsafe_ptr())
        var second = untracked(self.second.unsafe_ptr())
        var v = Matrix(untracked(self.v.unsafe_ptr()), b, 1)
        var t = Matrix(untracked(self.t.unsafe_ptr()), b, 1)
        if transposed:
            t = t.turned()
        for i in range(b * n):
            first[unsafe_offset=i] = 0
            second[unsafe_offset=i] = 0
        # Taken away twice: the signs cancel.
        subtract_product["cpu"](b, n, m, v.turned(), Matrix(c, row, 1), first, n, threads)
        subtract_product["cpu"](b, n, b, t, Matrix(first, n, 1), second, n, threads)
        subtract_product["cpu"](m, n, b, v, Matrix(second, n, 1), c, row, threads)


def qr[
    dtype: DType, //, target: StaticString
](
    a: Address[dtype],
    row: Int,
    m: Int,
    n: Int,
    tau: Address[dtype],
    spare: Address[dtype],
    threads: Int,
):
    """LAPACK's `geqrf` in place: `r` on and above the diagonal, reflections below."""
    var k = min(m, n)
    comptime if target == "cpu":
        if k > BLOCK:
            var block = _Block[dtype](m, n)
            for j in range(0, k, BLOCK):
                var b = min(BLOCK, k - j)
                var corner = a.unsafe_offset(j * row + j)
                _columns(corner, row, m - j, b, tau.unsafe_offset(j), spare)
                if j + b < n:
                    block.load(corner, row, m - j, b, tau.unsafe_offset(j), threads)
                    block.apply(
                        corner.unsafe_offset(b), row, m - j, n - j - b, b, True, threads
                    )
            _ = block^
            return
    _columns(a, row, m, n, tau, spare)


def apply_reflections[
    dtype: DType, //, target: StaticString
](
    a: Address[dtype],
    row: Int,
    k: Int,
    tau: Address[dtype],
    c: Address[dtype],
    m: Int,
    n: Int,
    transposed: Bool,
    unit: Bool,
    spare: Address[dtype],
    threads: Int,
):
    """`op(Q) c` of `c[m, n]` in place, `Q` the product of `k` reflections below the diagonal of
    `a`; `unit` says that `c` begins as columns of the unit matrix."""
    comptime if target == "cpu":
        if k > BLOCK // 2 and n >= BLOCK // 2:
            var block = _Block[dtype](m, n)
            var blocks = (k + BLOCK - 1) // BLOCK
            for turn in range(blocks):
                var j = (turn if transposed else blocks - 1 - turn) * BLOCK
                var b = min(BLOCK, k - j)
                block.load(a.unsafe_offset(j * row + j), row, m - j, b, tau.unsafe_offset(j), threads)
                var first = min(j, n) if unit and not transposed else 0
                block.apply(
                    c.unsafe_offset(j * n + first), n, m - j, n - first, b, transposed, threads
                )
            _ = block^
            return
    for turn in range(k):
        var j = turn if transposed else k - 1 - turn
        var first = min(j, n) if unit and not transposed else 0
        reflect(
            a.unsafe_offset(j * row + j),
            row,
            tau[unsafe_offset=j],
            c.unsafe_offset(j * n + first),
            n,
            m - j,
            n - first,
            spare,
        )


@register("tmb_qr")
struct QR:
    """LAPACK's `geqrf`: `R` with the reflections below it, and their scales. The last output is
    scratch."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        factors: OutputTensor[dtype=dtype, rank=3, ...],
        tau: OutputTensor[dtype=dtype, rank=2, ...],
        spare: OutputTensor[dtype=dtype, rank=2, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var m = a.dim_size[1]()
        var n = a.dim_size[2]()
        var step = tau.dim_size[1]()
        var source = untracked(a.unsafe_ptr())
        var result = untracked(factors.unsafe_ptr())
        var scales = untracked(tau.unsafe_ptr())
        var space = untracked(spare.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {var source, var result, var scales, var space, var m, var n, var step}:
            var to = result.unsafe_offset(item * m * n)
            copy(to, source.unsafe_offset(item * m * n), m * n)
            var at = scales.unsafe_offset(item * step)
            qr[target](to, n, m, n, at, space.unsafe_offset(item * n), threads)

        each_matrix[target=target](work, a.dim_size[0](), 2 * m * n * n + 1, ctx)


@register("tmb_orthogonal")
struct Orthogonal:
    """The first columns of a product of reflections. The last output is scratch."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        q: OutputTensor[dtype=dtype, rank=3, ...],
        spare: OutputTensor[dtype=dtype, rank=2, ...],
        reflections: InputTensor[dtype=dtype, rank=3, ...],
        tau: InputTensor[dtype=dtype, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        var m = q.dim_size[1]()
        var n = q.dim_size[2]()
        var row = reflections.dim_size[2]()
        var step = tau.dim_size[1]()
        var k = min(step, min(m, row))
        var ap = untracked(reflections.unsafe_ptr())
        var scales = untracked(tau.unsafe_ptr())
        var result = untracked(q.unsafe_ptr())
        var space = untracked(spare.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {var ap, var scales, var result, var space, var m, var n, var row, var k, var step}:
            var to = result.unsafe_offset(item * m * n)
            for i in range(m * n):
                to[unsafe_offset=i] = 0
            for i in range(min(m, n)):
                to[unsafe_offset = i * n + i] = 1
            apply_reflections[target](
                ap.unsafe_offset(item * m * row),
                row,
                k,
                scales.unsafe_offset(item * step),
                to,
                m,
                n,
                False,
                True,
                space.unsafe_offset(item * n),
                threads,
            )

        each_matrix[target=target](work, q.dim_size[0](), 2 * m * n * k + 1, ctx)


@register("tmb_reflect")
struct Reflect:
    """`op(Q) c`, `Q` a product of reflections. The last output is scratch."""

    @staticmethod
    def execute[
        dtype: DType, //, transposed: Bool, target: StaticString
    ](
        y: OutputTensor[dtype=dtype, rank=3, ...],
        spare: OutputTensor[dtype=dtype, rank=2, ...],
        reflections: InputTensor[dtype=dtype, rank=3, ...],
        tau: InputTensor[dtype=dtype, rank=2, ...],
        c: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        var m = c.dim_size[1]()
        var n = c.dim_size[2]()
        var row = reflections.dim_size[2]()
        var step = tau.dim_size[1]()
        var k = min(step, min(m, row))
        var ap = untracked(reflections.unsafe_ptr())
        var scales = untracked(tau.unsafe_ptr())
        var source = untracked(c.unsafe_ptr())
        var result = untracked(y.unsafe_ptr())
        var space = untracked(spare.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {
            var ap,
            var scales,
            var source,
            var result,
            var space,
            var m,
            var n,
            var row,
            var k,
            var step,
        }:
            var to = result.unsafe_offset(item * m * n)
            copy(to, source.unsafe_offset(item * m * n), m * n)
            apply_reflections[target](
                ap.unsafe_offset(item * m * row),
                row,
                k,
                scales.unsafe_offset(item * step),
                to,
                m,
                n,
                transposed,
                False,
                space.unsafe_offset(item * n),
                threads,
            )

        each_matrix[target=target](work, c.dim_size[0](), 2 * m * n * k + 1, ctx)
