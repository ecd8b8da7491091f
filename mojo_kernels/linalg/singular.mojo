"""Singular values and vectors: reflections to a bidiagonal matrix (Golub and Kahan), then
implicit QR steps with shifts (Golub and Reinsch, "Singular Value Decomposition and Least Squares
Solutions")."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import sqrt

from ..core.memory import Address, untracked
from .dense import add_scaled, copy, dot, each_matrix, exchange, make_reflector, scale
from .eigen_steps import accumulate, hypotenuse, in_parts
from .failures import check, failure
from .rotations import Rotations

# Steps for one singular value before it counts as not found.
comptime STEPS = 75


def bidiagonalize[
    dtype: DType, //, target: StaticString
](
    a: Address[dtype],
    m: Int,
    n: Int,
    d: Address[dtype],
    e: Address[dtype],
    left: Address[dtype],
    tau_left: Address[dtype],
    tau_right: Address[dtype],
    w: Address[dtype],
    threads: Int,
):
    """Diagonal `d[n]` and upper diagonal `e[n - 1]` of `Q^T a P` of `a[m, n]`, `m >= n`.
    Vectors of `Q` become rows of `left[n, m]`, those of `P` rows of `a` right of the
    diagonal. `w` holds `n` numbers."""
    for i in range(n):
        var line = a.unsafe_offset(i * n)
        var v = left.unsafe_offset(i * m)
        for r in range(i, m):
            v[unsafe_offset=r] = a[unsafe_offset = r * n + i]
        var t = make_reflector(v.unsafe_offset(i), v.unsafe_offset(i + 1), 1, m - i - 1)
        d[unsafe_offset=i] = v[unsafe_offset=i]
        tau_left[unsafe_offset=i] = t
        v[unsafe_offset=i] = 1
        var start = i + 1
        var columns = n - start
        tau_right[unsafe_offset=i] = 0
        if columns == 0:
            break

        # w = tau v^T a, a part of the columns a thread.
        @always_inline
        def sums(first: Int, end: Int) {var a, var n, var m, var i, var start, var v, var w, var t}:
            var to = w.unsafe_offset(start + first)
            for j in range(end - first):
                to[unsafe_offset=j] = 0
            for r in range(i, m):
                var from_ = a.unsafe_offset(r * n + start + first)
                add_scaled(to, from_, t * v[unsafe_offset=r], end - first)

        in_parts[target=target](sums, columns, (m - i) * columns, threads)
        var at = line.unsafe_offset(start)
        add_scaled(at, w.unsafe_offset(start), Scalar[dtype](-1), columns)
        var s = make_reflector(at, at.unsafe_offset(1), 1, columns - 1)
        e[unsafe_offset=i] = at[]
        tau_right[unsafe_offset=i] = s
        at[] = 1

        @always_inline
        def update(
            first: Int, end: Int
        ) {var a, var n, var start, var columns, var v, var w, var at, var s}:
            for r in range(start + first, start + end):
                var other = a.unsafe_offset(r * n + start)
                add_scaled(other, w.unsafe_offset(start), -v[unsafe_offset=r], columns)
                if s != 0:
                    add_scaled(other, at, -s * dot(other, at, columns), columns)

        in_parts[target=target](update, m - start, (m - start) * columns, threads)


@always_inline
def _rotation[
    dtype: DType, //
](f: Scalar[dtype], g: Scalar[dtype]) -> Tuple[Scalar[dtype], Scalar[dtype], Scalar[dtype]]:
    """`c`, `s` and `r` with `c f + s g = r` and `c g - s f = 0`."""
    var r = hypotenuse(f, g)
    if r == 0:
        return (Scalar[dtype](1), Scalar[dtype](0), r)
    return (f / r, g / r, r)


def singular_values[
    dtype: DType, //, target: StaticString
](
    d: Address[dtype],
    e: Address[dtype],
    n: Int,
    mut left: Rotations[dtype, target],
    mut right: Rotations[dtype, target],
) -> Int:
    """Singular values of a bidiagonal matrix, in `d`, of any sign. Returns 0, or how many were
    not found."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime epsilon = 5.960464477539063e-08 if dtype == DType.float32 else 1.1102230246251565e-16
    var eps = Scalar[dtype](epsilon)
    var end = n - 1
    var steps = 0
    while end > 0:
        # The block `first ... end` has no zero beside the diagonal.
        var first = end
        while first > 0:
            var size = abs(d[unsafe_offset = first - 1]) + abs(d[unsafe_offset=first])
            if abs(e[unsafe_offset = first - 1]) <= eps * size:
                e[unsafe_offset = first - 1] = 0
                break
            first -= 1
        if first == end:
            end -= 1
            steps = 0
            continue
        if steps == STEPS:
            return end + 1
        steps += 1
        var zero = -1
        for i in range(first, end + 1):
            # Beside what it is added to, it is 0.
            var beside = Scalar[dtype](0)
            if i > first:
                beside += abs(e[unsafe_offset = i - 1])
            if i < end:
                beside += abs(e[unsafe_offset=i])
            if abs(d[unsafe_offset=i]) <= eps * beside:
                zero = i
                break
        if zero == end:
            # The last column vanishes: rotate `e` away, upwards.
            var f = e[unsafe_offset = end - 1]
            e[unsafe_offset = end - 1] = 0
            d[unsafe_offset=end] = 0
            for i in reversed(range(first, end)):
                var c, s, r = _rotation(d[unsafe_offset=i], f)
                d[unsafe_offset=i] = r
                if i > first:
                    f = -s * e[unsafe_offset = i - 1]
                    e[unsafe_offset = i - 1] *= c
                right.add(i, end, c, s)
            continue
        if zero >= 0:
            # A row vanishes but for `e`: rotate that away, to the right.
            var f = e[unsafe_offset=zero]
            e[unsafe_offset=zero] = 0
            d[unsafe_offset=zero] = 0
            for i in range(zero + 1, end + 1):
                var c, s, r = _rotation(d[unsafe_offset=i], f)
                d[unsafe_offset=i] = r
                if i < end:
                    f = -s * e[unsafe_offset=i]
                    e[unsafe_offset=i] *= c
                left.add(i, zero, c, s)
            continue
        # Wilkinson's shift, of the last 2 x 2 block of the square.
        var largest = max(
            max(abs(d[unsafe_offset=end]), abs(d[unsafe_offset = end - 1])),
            max(
                abs(e[unsafe_offset = end - 1]),
                max(abs(d[unsafe_offset=first]), abs(e[unsafe_offset=first])),
            ),
        )
        var last = d[unsafe_offset=end] / largest
        var before = d[unsafe_offset = end - 1] / largest
        var corner = e[unsafe_offset = end - 1] / largest
        var top = d[unsafe_offset=first] / largest
        var along = e[unsafe_offset=first] / largest
        var b = ((before + last) * (before - last) + corner * corner) / 2
        var c2 = (last * corner) * (last * corner)
        var shift = Scalar[dtype](0)
        if b != 0 or c2 != 0:
            shift = sqrt(b * b + c2)
            shift = c2 / (b + (shift if b >= 0 else -shift))
        var f = (top + last) * (top - last) + shift
        var g = top * along
        for i in range(first, end):
            var c, s, r = _rotation(f, g)
            if i > first:
                e[unsafe_offset = i - 1] = r
            var di = d[unsafe_offset=i]
            var ei = e[unsafe_offset=i]
            var next = d[unsafe_offset = i + 1]
            f = c * di + s * ei
            e[unsafe_offset=i] = c * ei - s * di
            g = s * next
            d[unsafe_offset = i + 1] = c * next
            right.add(i, i + 1, c, s)
            c, s, r = _rotation(f, g)
            d[unsafe_offset=i] = r
            ei = e[unsafe_offset=i]
            next = d[unsafe_offset = i + 1]
            f = c * ei + s * next
            d[unsafe_offset = i + 1] = c * next - s * ei
            left.add(i, i + 1, c, s)
            if i + 1 < end:
                g = s * e[unsafe_offset = i + 1]
                e[unsafe_offset = i + 1] *= c
        e[unsafe_offset = end - 1] = f
    return 0


@register("tmb_svd")
struct SVD:
    """Singular values in descending order, left and right vectors as rows, and how many values
    were not found (-4: not finite), of `[batch, m, n]`. The last three outputs are scratch.

    On CPU, `text` is raised for a matrix that fails, `infinite` for one that is not finite: "@"
    stands for its place, "#" for how many values were not found."""

    @staticmethod
    def execute[
        dtype: DType,
        //,
        vectors: Bool,
        single: Bool,
        text: StaticString,
        infinite: StaticString,
        target: StaticString,
    ](
        values: OutputTensor[dtype=dtype, rank=2, ...],
        left: OutputTensor[dtype=dtype, rank=3, ...],
        right: OutputTensor[dtype=dtype, rank=3, ...],
        info: OutputTensor[dtype=DType.int32, rank=1, ...],
        spare: OutputTensor[dtype=dtype, rank=3, ...],
        reflections: OutputTensor[dtype=dtype, rank=3, ...],
        lines: OutputTensor[dtype=dtype, rank=3, ...],
        a: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        var flat = a.dim_size[1]() < a.dim_size[2]()
        # Of a matrix with more columns than rows, the transposed one is taken.
        var m = max(a.dim_size[1](), a.dim_size[2]())
        var n = min(a.dim_size[1](), a.dim_size[2]())
        var rows = right.dim_size[1]() if flat else left.dim_size[1]()
        var source = untracked(a.unsafe_ptr())
        var found = untracked(values.unsafe_ptr())
        var us = untracked(left.unsafe_ptr())
        var vs = untracked(right.unsafe_ptr())
        if flat:
            swap(us, vs)
        var failed = untracked(info.unsafe_ptr())
        var space = untracked(spare.unsafe_ptr())
        var kept = untracked(reflections.unsafe_ptr())
        var more = untracked(lines.unsafe_ptr())

        @always_inline
        def work(
            item: Int, threads: Int
        ) {
            var source,
            var found,
            var us,
            var vs,
            var failed,
            var space,
            var kept,
            var more,
            var flat,
            var m,
            var n,
            var rows,
        }:
            var from_ = source.unsafe_offset(item * m * n)
            var t = space.unsafe_offset(item * m * n)
            var d = found.unsafe_offset(item * n)
            var u = us.unsafe_offset(item * rows * m)
            var v = vs.unsafe_offset(item * n * n)
            var h = kept.unsafe_offset(item * m * n)
            var e = more.unsafe_offset(item * 4 * n)
            var tau = e.unsafe_offset(n)
            var other = e.unsafe_offset(2 * n)
            if flat:
                for i in range(n):
                    for j in range(m):
                        t[unsafe_offset = j * n + i] = from_[unsafe_offset = i * m + j]
            else:
                copy(t, from_, m * n)
            var most = Scalar[dtype](0)
            var total = Scalar[dtype](0)
            for i in range(m * n):
                most = max(most, abs(t[unsafe_offset=i]))
                total += t[unsafe_offset=i] * 0
            if total != 0:
                for i in range(n):
                    d[unsafe_offset=i] = total
                comptime if vectors:
                    for i in range(rows * m):
                        u[unsafe_offset=i] = total
                    for i in range(n * n):
                        v[unsafe_offset=i] = total
                failed[unsafe_offset=item] = -4
                return
            # Squares must neither overflow nor vanish.
            comptime low = 1e-12 if dtype == DType.float32 else 1e-120
            comptime high = 1e12 if dtype == DType.float32 else 1e120
            var scaled = most != 0 and (
                most < Scalar[dtype](low) or most > Scalar[dtype](high)
            )
            if scaled:
                for i in range(m * n):
                    t[unsafe_offset=i] /= most
            bidiagonalize[target](
                t, m, n, d, e, h, tau, other, e.unsafe_offset(3 * n), threads
            )
            comptime if vectors:
                accumulate[target](u, m, rows, h, m, 0, tau, n, threads)
                accumulate[target](v, n, n, t, n, 1, other, max(n - 1, 0), threads)
            var turn_left = Rotations[dtype, target](u, m if vectors else 0, threads)
            var turn_right = Rotations[dtype, target](v, n if vectors else 0, threads)
            var missed = singular_values(d, e, n, turn_left, turn_right)
            turn_left.finish()
            turn_right.finish()
            failed[unsafe_offset=item] = Int32(missed)
            for i in range(n):
                if scaled:
                    d[unsafe_offset=i] *= most
                if d[unsafe_offset=i] < 0:
                    comptime if vectors:
                        scale(v.unsafe_offset(i * n), Scalar[dtype](-1), n)
                # Not a negative zero either.
                d[unsafe_offset=i] = abs(d[unsafe_offset=i])
            for i in range(n - 1):
                var largest = i
                for j in range(i + 1, n):
                    if d[unsafe_offset=j] > d[unsafe_offset=largest]:
                        largest = j
                if largest != i:
                    swap(d[unsafe_offset=i], d[unsafe_offset=largest])
                    comptime if vectors:
                        exchange(v.unsafe_offset(i * n), v.unsafe_offset(largest * n), n)
                        exchange(u.unsafe_offset(i * m), u.unsafe_offset(largest * m), m)
            _ = turn_left^
            _ = turn_right^

        var batch = a.dim_size[0]()
        each_matrix[target=target](work, batch, 12 * m * n * n + 1, ctx)
        comptime if target == "cpu":
            for i in range(batch):
                if failed[unsafe_offset=i] < 0:
                    raise failure(infinite, i, single, 0)
            check(failed, batch, text, single)
