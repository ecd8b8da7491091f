"""What eigenvalues and singular values have in common."""

from std.math import sqrt

from ..core.memory import Address
from ..core.team import in_ranges
from .dense import add_scaled, dot

# Numbers a thread should have to go through at least.
comptime GRAIN = 20_000


@always_inline
def hypotenuse[dtype: DType, //](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    """`sqrt(a^2 + b^2)` without overflow."""
    comptime assert dtype.is_floating_point(), "float only"
    var x = abs(a)
    var y = abs(b)
    comptime low = 1e-15 if dtype == DType.float32 else 1e-140
    comptime high = 1e15 if dtype == DType.float32 else 1e140
    var largest = max(x, y)
    if largest > Scalar[dtype](low) and largest < Scalar[dtype](high):
        return sqrt(x.fma(x, y * y))
    if x < y:
        swap(x, y)
    if x == 0:
        return x
    var ratio = y / x
    return x * sqrt(ratio.fma(ratio, 1))


@always_inline
def in_parts[
    Work: (def(Int, Int) -> None) & RegisterPassable & ImplicitlyCopyable,
    //,
    target: StaticString,
](work: Work, count: Int, cost: Int, threads: Int):
    """Calls `work(start, end)` for parts of `count` lines that cost `cost` together."""
    comptime if target == "cpu":
        var tasks = min(min(threads, count), cost // GRAIN)
        if tasks > 1:
            in_ranges(work, count, tasks)
            return
    work(0, count)


def accumulate[
    dtype: DType, //, target: StaticString
](
    q: Address[dtype],
    columns: Int,
    rows: Int,
    v: Address[dtype],
    row: Int,
    shift: Int,
    tau: Address[dtype],
    count: Int,
    threads: Int,
):
    """Rows of `Q^T`, `Q` the product of `count` reflections: the vector of reflection `j` is
    `v[j, shift + j:]`, of which each number is given."""

    @always_inline
    def work(
        first: Int, end: Int
    ) {var q, var columns, var v, var row, var shift, var tau, var count}:
        for r in range(first, end):
            var line = q.unsafe_offset(r * columns)
            for j in range(columns):
                line[unsafe_offset=j] = 1 if r == j else 0
            for j in reversed(range(max(0, min(count, r - shift + 1)))):
                var at = shift + j
                var by = v.unsafe_offset(j * row + at)
                var part = line.unsafe_offset(at)
                var sum = dot(part, by, columns - at)
                add_scaled(part, by, -tau[unsafe_offset=j] * sum, columns - at)

    in_parts[target=target](work, rows, rows * columns * count // 4, threads)
