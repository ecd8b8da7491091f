"""Eigenvalues and eigenvectors of symmetric matrices: reflections to a tridiagonal matrix, then
implicit QL steps (Golub and Van Loan, "Matrix Computations", 8.3)."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from ..core.memory import Address, untracked
from .dense import add_two_scaled, dot, each_matrix, exchange, make_reflector
from .eigen_steps import accumulate, hypotenuse, in_parts
from .failures import check
from .rotations import Rotations

# Steps for one eigenvalue before it counts as not found.
comptime STEPS = 60


def tridiagonalize[
    dtype: DType, //, target: StaticString
](
    a: Address[dtype],
    n: Int,
    d: Address[dtype],
    e: Address[dtype],
    tau: Address[dtype],
    w: Address[dtype],
    p: Address[dtype],
    threads: Int,
):
    """Diagonal `d[n]` and off-diagonal `e[n - 1]` of `Q^T a Q` of a symmetric `a`, of which
    both triangles are given. Reflection `i` replaces row `i` right of the diagonal. `tau`, `w`
    and `p` hold `n` numbers each."""
    for i in range(n):
        var line = a.unsafe_offset(i * n)
        var before = line.unsafe_offset(-n)
        if i > 0:
            # What the reflection before does to this row; its vector begins with 1 here.
            add_two_scaled(
                line.unsafe_offset(i),
                w.unsafe_offset(i),
                Scalar[dtype](-1),
                before.unsafe_offset(i),
                -w[unsafe_offset=i],
                n - i,
            )
        d[unsafe_offset=i] = line[unsafe_offset=i]
        if i + 1 >= n:
            break
        var start = i + 1
        var v = line.unsafe_offset(start)
        var t = make_reflector(v, v.unsafe_offset(1), 1, n - start - 1)
        e[unsafe_offset=i] = v[]
        tau[unsafe_offset=i] = t
        v[] = 1

        @always_inline
        def work(
            first: Int, end: Int
        ) {var a, var n, var start, var v, var w, var p, var before, var i}:
            for r in range(first + start, end + start):
                var other = a.unsafe_offset(r * n + start)
                if i > 0:
                    add_two_scaled(
                        other,
                        w.unsafe_offset(start),
                        -before[unsafe_offset=r],
                        before.unsafe_offset(start),
                        -w[unsafe_offset=r],
                        n - start,
                    )
                p[unsafe_offset=r] = dot(other, v, n - start)

        in_parts[target=target](work, n - start, (n - start) * (n - start), threads)
        # w = tau p - (tau^2 / 2) (p v) v
        var half = -t * t * dot(p.unsafe_offset(start), v, n - start) / 2
        for r in range(start, n):
            w[unsafe_offset=r] = t.fma(
                p[unsafe_offset=r], half * line[unsafe_offset=r]
            )


def diagonalize[
    dtype: DType, //, target: StaticString
](
    d: Address[dtype], e: Address[dtype], n: Int, mut vectors: Rotations[dtype, target]
) -> Int:
    """Eigenvalues of a tridiagonal matrix, in `d`, by implicit QL steps with shifts. Returns 0,
    or how many were not found."""
    comptime assert dtype.is_floating_point(), "float only"
    if n > 0:
        e[unsafe_offset = n - 1] = 0
    for l in range(n):
        var steps = 0
        while True:
            var m = l
            while m < n - 1:
                var size = abs(d[unsafe_offset=m]) + abs(d[unsafe_offset = m + 1])
                if abs(e[unsafe_offset=m]) + size == size:
                    break
                m += 1
            if m == l:
                break
            if steps == STEPS:
                return n - l
            steps += 1
            var g = (d[unsafe_offset = l + 1] - d[unsafe_offset=l]) / (
                2 * e[unsafe_offset=l]
            )
            var r = hypotenuse(g, Scalar[dtype](1))
            g = (
                d[unsafe_offset=m]
                - d[unsafe_offset=l]
                + e[unsafe_offset=l] / (g + (r if g >= 0 else -r))
            )
            var s = Scalar[dtype](1)
            var c = Scalar[dtype](1)
            var p = Scalar[dtype](0)
            var split = False
            for i in reversed(range(l, m)):
                var f = s * e[unsafe_offset=i]
                var b = c * e[unsafe_offset=i]
                r = hypotenuse(f, g)
                e[unsafe_offset = i + 1] = r
                if r == 0:
                    # Underflow: the matrix falls into two.
                    d[unsafe_offset = i + 1] -= p
                    e[unsafe_offset=m] = 0
                    split = True
                    break
                s = f / r
                c = g / r
                g = d[unsafe_offset = i + 1] - p
                r = (d[unsafe_offset=i] - g) * s + 2 * c * b
                p = s * r
                d[unsafe_offset = i + 1] = g + p
                g = c * r - b
                # z[i + 1] = s z[i] + c z[i + 1], z[i] = c z[i] - s z[i + 1]
                vectors.add(i + 1, i, c, s)
            if split:
                continue
            d[unsafe_offset=l] -= p
            e[unsafe_offset=l] = g
            e[unsafe_offset=m] = 0
    return 0


@register("tmb_eigh")
struct Eigh:
    """Eigenvalues in ascending order, eigenvectors as rows, and how many eigenvalues were not
    found, of the lower (`upper`: the upper) triangle. The last two outputs are scratch.

    On CPU, `text` is raised for a matrix that fails: "@" stands for its place, "#" for how many
    values were not found."""

    @staticmethod
    def execute[
        dtype: DType,
        //,
        upper: Bool,
        vectors: Bool,
        single: Bool,
        text: StaticString,
        target: StaticString,
    ](
        values: OutputTensor[dtype=dtype, rank=2, ...],
        rows: OutputTensor[dtype=dtype, rank=3, ...],
        info: OutputTensor[dtype=DType.int32, rank=1, ...],
        spare: OutputTensor[dtype=dtype, rank=3, ...],
        lines: OutputTensor[dtype=dtype, rank=3, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var n = a.dim_size[2]()
        var source = untracked(a.unsafe_ptr())
        var found = untracked(values.unsafe_ptr())
        var basis = untracked(rows.unsafe_ptr())
        var failed = untracked(info.unsafe_ptr())
        var space = untracked(spare.unsafe_ptr())
        var more = untracked(lines.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {var source, var found, var basis, var failed, var space, var more, var n}:
            var from_ = source.unsafe_offset(item * n * n)
            var t = space.unsafe_offset(item * n * n)
            var d = found.unsafe_offset(item * n)
            var w = basis.unsafe_offset(item * n * n)
            var e = more.unsafe_offset(item * 4 * n)
            var most = Scalar[dtype](0)
            var total = Scalar[dtype](0)
            for i in range(n):
                for j in range(i + 1):
                    var v = from_[unsafe_offset = (j * n + i) if upper else (i * n + j)]
                    t[unsafe_offset = i * n + j] = v
                    t[unsafe_offset = j * n + i] = v
                    most = max(most, abs(v))
                    total += v * 0
            if total != 0:
                # Not finite.
                for i in range(n):
                    d[unsafe_offset=i] = total
                comptime if vectors:
                    for i in range(n * n):
                        w[unsafe_offset=i] = total
                failed[unsafe_offset=item] = Int32(max(n, 2) - 1)
                return
            # Squares must neither overflow nor vanish.
            comptime low = 1e-12 if dtype == DType.float32 else 1e-120
            comptime high = 1e12 if dtype == DType.float32 else 1e120
            var scaled = most != 0 and (
                most < Scalar[dtype](low) or most > Scalar[dtype](high)
            )
            if scaled:
                for i in range(n * n):
                    t[unsafe_offset=i] /= most
            var tau = e.unsafe_offset(n)
            tridiagonalize[target](
                t, n, d, e, tau, e.unsafe_offset(2 * n), e.unsafe_offset(3 * n), threads
            )
            comptime if vectors:
                accumulate[target](w, n, n, t, n, 1, tau, max(n - 1, 0), threads)
            var rotations = Rotations[dtype, target](w, n if vectors else 0, threads)
            var missed = diagonalize(d, e, n, rotations)
            rotations.finish()
            failed[unsafe_offset=item] = Int32(missed)
            for i in range(n):
                if scaled:
                    d[unsafe_offset=i] *= most
            for i in range(n - 1):
                var least = i
                for j in range(i + 1, n):
                    if d[unsafe_offset=j] < d[unsafe_offset=least]:
                        least = j
                if least != i:
                    swap(d[unsafe_offset=i], d[unsafe_offset=least])
                    comptime if vectors:
                        exchange(w.unsafe_offset(i * n), w.unsafe_offset(least * n), n)
            _ = rotations^

        each_matrix[target=target](work, a.dim_size[0](), 8 * n * n * n + 1, ctx)
        comptime if target == "cpu":
            check(failed, a.dim_size[0](), text, single)
