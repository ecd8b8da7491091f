"""Whom kernels ask for matrix products: `panels.mojo` and `few_rows.mojo`, a CPU's instructions for
bfloat16, or a Fortran BLAS `?gemm` whose address the graph is given and whose own threads stay out
of it."""

from std.memory import Pointer

from ..core.memory import Address, untracked
from ..core.team import task_count
from .bfloat16 import multiply_pairs, takes_pairs
from .few_rows import few_rows, takes_few_rows
from .panels import Matrix, product, reads_once

# transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc. Numbers of 64
# bits, little-endian and positive, serve a library that reads 32 as well.
comptime Routine[dtype: DType] = def(
    Address[DType.int8],
    Address[DType.int8],
    Address[DType.int64],
    Address[DType.int64],
    Address[DType.int64],
    Address[dtype],
    Address[dtype],
    Address[DType.int64],
    Address[dtype],
    Address[DType.int64],
    Address[dtype],
    Address[dtype],
    Address[DType.int64],
) thin abi("C") -> None
comptime SetThreads = def(Int32) thin abi("C") -> Int32

# Multiplications a task should have at least: about 20 microseconds.
comptime GRAIN = 1_000_000
# Rows of a result that is rounded, at a time.
comptime ROWS = 256
# Multiplications that take as long as reading a number that no cache holds.
comptime READ = 8
# Numbers of a right operand that no second-level cache holds: a library's routine waits for them,
# `panels.mojo` asks for them ahead of time.
comptime LARGE = 262144


@always_inline
def sum_type[dtype: DType]() -> DType:
    """The type in which products of `dtype` are added up."""
    return DType.float32 if dtype.is_half_float() else dtype


@fieldwise_init
struct Gemm(TrivialRegisterPassable):
    """Who multiplies: the routine at an address and the one that bounds the
    threads of its library (or 0); with address 0 `panels.mojo`."""

    var routine: Int
    var set_threads: Int

    @always_inline
    def begin(self) -> Int32:
        """Keeps the library on the calling thread; returns what `end` takes."""
        if self.set_threads == 0:
            return 0
        var address = self.set_threads
        return Pointer(to=address).unsafe_bitcast[SetThreads]()[](Int32(1))

    @always_inline
    def end(self, previous: Int32):
        """Undoes `begin`."""
        if self.set_threads == 0:
            return
        var address = self.set_threads
        _ = Pointer(to=address).unsafe_bitcast[SetThreads]()[](previous)

    @no_inline
    def multiply[
        a_type: DType, b_type: DType, sum: DType, //, rounded: Bool = False
    ](
        self,
        m: Int,
        n: Int,
        k: Int,
        a: Address[a_type],
        row_a: Int,
        transposed_a: Bool,
        b: Address[b_type],
        row_b: Int,
        transposed_b: Bool,
        c: Address[sum],
        row_c: Int,
        added: Bool = False,
    ):
        """Row-major `c[m, n] = op(a) op(b)`, or `added` to what is there; `row_*`
        are distances of rows. float32 may be `rounded` to bfloat16 where that is faster."""
        var left = Matrix(a, row_a, 1)
        if transposed_a:
            left = left.turned()
        var right = Matrix(b, row_b, 1)
        if transposed_b:
            right = right.turned()
        if takes_pairs[rounded](m, n, k, left, right, c):
            multiply_pairs(m, n, k, left, right, c, row_c, added)
            return
        if k > 0 and takes_few_rows(m, left, right):
            few_rows(m, n, k, left, right, c, row_c, added)
            return
        comptime if a_type == sum and b_type == sum:
            # It refuses rows that lie nearer to each other than they are long.
            var long_a = m if transposed_a else k
            var long_b = k if transposed_b else n
            var apart = row_a >= long_a or (k if transposed_a else m) <= 1
            apart = apart and (row_b >= long_b or (n if transposed_b else k) <= 1)
            var ahead = reads_once(m) and n * k > LARGE
            if self.routine != 0 and apart and not ahead:
                self._call(
                    m,
                    n,
                    k,
                    a.unsafe_bitcast[Scalar[sum]](),
                    max(row_a, long_a),
                    transposed_a,
                    b.unsafe_bitcast[Scalar[sum]](),
                    max(row_b, long_b),
                    transposed_b,
                    c,
                    max(row_c, n),
                    added,
                )
                return
        product(m, n, k, left, right, c, row_c, added)

    @always_inline
    def _call[
        dtype: DType, //
    ](
        self,
        m: Int,
        n: Int,
        k: Int,
        a: Address[dtype],
        row_a: Int,
        transposed_a: Bool,
        b: Address[dtype],
        row_b: Int,
        transposed_b: Bool,
        c: Address[dtype],
        row_c: Int,
        added: Bool,
    ):
        # Fortran sees each matrix transposed, so the operands change places.
        var ta = Int8(116 if transposed_b else 110)
        var tb = Int8(116 if transposed_a else 110)
        var rows = Int64(n)
        var columns = Int64(m)
        var inner = Int64(k)
        var one = Scalar[dtype](1)
        var kept = Scalar[dtype](1 if added else 0)
        var first = Int64(max(row_b, 1))
        var second = Int64(max(row_a, 1))
        var third = Int64(max(row_c, 1))
        var address = self.routine
        Pointer(to=address).unsafe_bitcast[Routine[dtype]]()[](
            untracked(Pointer(to=ta)),
            untracked(Pointer(to=tb)),
            untracked(Pointer(to=rows)),
            untracked(Pointer(to=columns)),
            untracked(Pointer(to=inner)),
            untracked(Pointer(to=one)),
            b,
            untracked(Pointer(to=first)),
            a,
            untracked(Pointer(to=second)),
            untracked(Pointer(to=kept)),
            c,
            untracked(Pointer(to=third)),
        )
        # The library reads them while it runs.
        _ = (ta, tb, rows, columns, inner, one, first, second, kept, third)


@always_inline
def tasks_for(units: Int, multiplications: Int) -> Int:
    """How many tasks to cut `units` into that cost so much together."""
    return task_count(units, multiplications, GRAIN)


@always_inline
def product_cost(batch: Int, m: Int, n: Int, k: Int) -> Int:
    """What products cost, in multiplications: of few rows, the reading of the right operand."""
    return batch * n * max(k, 1) * max(m, READ)
