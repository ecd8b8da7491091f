"""Matrix products of few rows. Most of what they read is the right operand, which is used too
little to be worth copying into panels: it is read where it lies, and asked for ahead of time."""

from std.math import ceildiv
from std.sys import simd_width_of, size_of
from std.sys.intrinsics import PrefetchOptions, masked_load, prefetch

from ..core.memory import CACHE_LINE, Address, untracked
from ..core.rounding import from_bits
from ..core.vectors import MANY_REGISTERS, below, totals
from ..mathematics.float8 import widened
from .bfloat16 import SIDE, UNIT, dots
from .panels import WIDE, Matrix, left_size, pack_left, tiles

# Rows of a result that count as few: where fewer sums fit in registers, more are worth a copy.
comptime FEW = 48 if MANY_REGISTERS else 16
# Columns at a time where rows of the right operand are contiguous, and elements of a block of them:
# it and the next one fit a second-level cache.
comptime BROAD = 2048
comptime BLOCK = 32768
# The most steps along the inner dimension in a block: what a strip of columns has of it fits a
# first-level cache.
comptime DEEP = 256
# The same where its columns are contiguous: what a group of them has fits a first-level cache.
comptime LONG = 1024
# Rows of the right operand that one row takes beside each other.
comptime BESIDE = 8
# The most rows that read the right operand in its order, and columns that they take at a time: what
# these have of rows beside each other, and their sums, fit a second-level cache.
comptime FEWEST = 4
comptime STRIP = 4096
# Columns and rows whose sums stay in registers.
comptime ACROSS = 8 if MANY_REGISTERS else 4
comptime DOWN = 2 if MANY_REGISTERS else 3
# Whether one row is multiplied with one column after the other. AMD's CPUs with dot products read
# 1.5 times as fast so as in groups, whose many streams Intel's bring faster than one.
comptime IN_ORDER = UNIT == "dots"


@always_inline
def takes_few_rows[a_type: DType, b_type: DType, //](m: Int, a: Matrix[a_type], b: Matrix[b_type]) -> Bool:
    """Whether `few_rows` multiplies such operands."""
    return m <= FEW and (b.column == 1 or (b.row == 1 and a.column == 1))


@no_inline
def few_rows[
    a_type: DType, b_type: DType, sum: DType, //
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[a_type],
    b: Matrix[b_type],
    c: Address[sum],
    row: Int,
    added: Bool,
):
    """`c[m, n] = a[m, k] b[k, n]`, or added to what is there; `row` the distance of rows of `c`,
    `k` not 0."""
    if b.row == 1 and a.column == 1:
        _by_dots(m, n, k, a, b, c, row, added)
        return
    comptime if a_type == sum and b_type == sum:
        if m <= FEWEST:
            _in_order(m, n, k, rebind[Matrix[sum]](a), rebind[Matrix[sum]](b), c, row, added)
            return
    _by_columns(m, n, k, a, b, c, row, added)


def _in_order[
    dtype: DType, //
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[dtype],
    b: Matrix[dtype],
    c: Address[dtype],
    row: Int,
    added: Bool,
):
    """Rows of `b` are contiguous, and so few use them that reading them takes all the time: they
    are read in their order, some beside each other, so that sums are seldom loaded and stored."""
    comptime width = simd_width_of[dtype]()
    for j0 in range(0, n, STRIP):
        var columns = min(STRIP, n - j0)
        var sums = c.unsafe_offset(j0)
        if not added:
            for i in range(m):
                for j in range(columns):
                    sums[unsafe_offset = i * row + j] = 0
        var p = 0
        while p < k:
            var count = BESIDE if p + BESIDE <= k else 1
            for i in range(m):
                var to = sums.unsafe_offset(i * row)
                if count == BESIDE:
                    _add_rows[BESIDE, width](columns, a.from_(i, p), b.at(p, j0), b.row, to)
                else:
                    _add_rows[1, width](columns, a.from_(i, p), b.at(p, j0), b.row, to)
            p += count


@always_inline
def _add_rows[
    dtype: DType, //, count: Int, width: Int
](n: Int, a: Matrix[dtype], b: Address[dtype], row: Int, c: Address[dtype]):
    """Adds `count` rows to the sums, each times a number."""
    comptime Some = SIMD[dtype, width]
    var factors = Array[Some, count](fill=0)
    comptime for r in range(count):
        factors[r] = Some(a.at(0, r)[])
    var j = 0
    while j + width <= n:
        var part = Some(0)
        comptime for r in range(count):
            part = b.unsafe_load[width=width](r * row + j).fma(factors[r], part)
        c.unsafe_store(j, c.unsafe_load[width=width](j) + part)
        j += width
    while j < n:
        var part = Scalar[dtype](0)
        comptime for r in range(count):
            part = b[unsafe_offset = r * row + j].fma(factors[r][0], part)
        c[unsafe_offset=j] += part
        j += 1


def _by_columns[
    a_type: DType, b_type: DType, sum: DType, //
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[a_type],
    b: Matrix[b_type],
    c: Address[sum],
    row: Int,
    added: Bool,
):
    """Rows of `b` are contiguous: multiplies blocks of them, a strip of columns at a time."""
    comptime width = simd_width_of[sum]()
    comptime panel = WIDE * width
    comptime Some = SIMD[b_type, width]
    var deep = min(DEEP, BLOCK // max(1, min(n, BROAD)))
    var left = List[Scalar[sum]](unsafe_uninit_length=left_size(m, deep) + width)
    var lp = untracked(left.unsafe_ptr())
    # What is left of the columns: reading whole vectors could leave the memory of `b`.
    var rest = List[Scalar[b_type]](unsafe_uninit_length=deep * panel)
    var rest_pointer = untracked(rest.unsafe_ptr())
    for j0 in range(0, n, BROAD):
        var columns = min(BROAD, n - j0)
        for p in range(0, k, deep):
            var depth = min(deep, k - p)
            pack_left(lp, a.from_(0, p), m, depth)
            var following = b.from_(p + deep, j0)
            var more = p + deep < k
            if not more and j0 + BROAD < n:
                following = b.from_(0, j0 + BROAD)
                more = True
            for j in range(0, columns, panel):
                var wide = min(panel, columns - j)
                var right = b.at(p, j0 + j)
                var right_row = b.row
                if wide < panel:
                    for s in range(depth):
                        var line = right.unsafe_offset(s * b.row)
                        var to = rest_pointer.unsafe_offset(s * panel)
                        comptime for i in range(0, panel, width):
                            var inside = below[width](wide - i)
                            to.unsafe_store(
                                i, masked_load[width](line.unsafe_offset(i), inside, Some(0))
                            )
                    right = rest_pointer
                    right_row = panel
                tiles(
                    m,
                    wide,
                    depth,
                    lp,
                    right,
                    right_row,
                    c.unsafe_offset(j0 + j),
                    row,
                    added or p != 0,
                    following.from_(0, j),
                    wide if more else 0,
                )
    _ = left^
    _ = rest^


def _by_dots[
    a_type: DType, b_type: DType, sum: DType, //
](
    m: Int,
    n: Int,
    k: Int,
    a: Matrix[a_type],
    b: Matrix[b_type],
    c: Address[sum],
    row: Int,
    added: Bool,
):
    """Columns of `b`, and rows of `a`, are contiguous: dot products, of a group of columns with
    all rows before the next group."""
    comptime width = simd_width_of[sum]()
    comptime if IN_ORDER:
        if m == 1:
            for j in range(n):
                _dot(k, a.at(0, 0), b.at(0, j), c.unsafe_offset(j), added)
            return
    var long = ceildiv(ceildiv(k, ceildiv(k, LONG)), width) * width
    for p in range(0, k, long):
        var depth = min(long, k - p)
        var adds = added or p != 0
        for j in range(0, n, ACROSS):
            var columns = min(ACROSS, n - j)
            var right = b.from_(p, j)
            var following = b.from_(p, j + ACROSS)
            if j + ACROSS >= n:
                following = b.from_(p + long, 0)
            # One row of float32 is no faster where it asks: a processor brings long lines by itself.
            comptime narrow = size_of[Scalar[b_type]]() <= 2
            var more = (m > 1 or narrow) and (j + ACROSS < n or p + long < k)
            # Each turn asks for its share of the next group.
            var turns = ceildiv(m, DOWN)
            for turn in range(turns):
                var i = turn * DOWN
                var first = turn * ACROSS // turns
                var last = (turn + 1) * ACROSS // turns if more else first
                var to = c.unsafe_offset(i * row + j)
                var lines = a.from_(i, p)
                comptime for rows in range(1, DOWN + 1):
                    if min(DOWN, m - i) == rows:
                        _dots[rows](
                            columns, depth, lines, right, to, row, adds, following, first, last
                        )


@always_inline
def _rest[
    dtype: DType, width: SIMDLength, //, sum: DType
](source: Address[dtype], inside: SIMD[DType.bool, width]) -> SIMD[sum, width]:
    """The numbers that are `inside`, and 0 elsewhere, in the type of sums."""
    comptime if dtype == DType.bfloat16:
        var none = SIMD[DType.uint16, width](0)
        return from_bits(masked_load[width](source.unsafe_bitcast[UInt16](), inside, none)).cast[sum]()
    else:
        return widened[sum](masked_load[width](source, inside, SIMD[dtype, width](0)))


@always_inline
def _dot[
    a_type: DType, b_type: DType, sum: DType, //
](k: Int, a: Address[a_type], b: Address[b_type], c: Address[sum], added: Bool):
    """The dot product of two lines, the second of which is read from end to end: the next one
    follows it in memory, as a processor expects."""
    comptime width = simd_width_of[sum]()
    comptime turns = 4
    comptime paired = UNIT == "dots" and a_type == DType.bfloat16 and b_type == DType.bfloat16
    var sums = Array[SIMD[sum, width], turns](fill=SIMD[sum, width](0))
    var done = 0
    comptime if paired and sum == DType.float32 and width == SIDE:
        comptime Pairs = SIMD[DType.bfloat16, 2 * SIDE]
        comptime Sums = SIMD[DType.float32, SIDE]
        done = k // (2 * turns * SIDE) * (2 * turns * SIDE)
        for q in range(0, done, 2 * turns * SIDE):
            comptime for t in range(turns):
                var at = q + 2 * t * SIDE
                var left = rebind[Pairs](a.unsafe_load[width = 2 * SIDE](at))
                var right = rebind[Pairs](b.unsafe_load[width = 2 * SIDE](at))
                sums[t] = rebind[SIMD[sum, width]](dots(rebind[Sums](sums[t]), left, right))
    else:
        done = k // (turns * width) * (turns * width)
        for q in range(0, done, turns * width):
            comptime for t in range(turns):
                var at = q + t * width
                var left = a.unsafe_load[width=width](at).cast[sum]()
                sums[t] = left.fma(widened[sum](b.unsafe_load[width=width](at)), sums[t])
    var total = (sums[0] + sums[1]) + (sums[2] + sums[3])
    for q in range(done, k, width):
        var inside = below[width](k - q)
        var left = _rest[sum](a.unsafe_offset(q), inside)
        total = left.fma(_rest[sum](b.unsafe_offset(q), inside), total)
    var result = total.reduce_add()
    if added:
        result += c[]
    c[] = result


@always_inline
def _dots[
    a_type: DType, b_type: DType, sum: DType, //, rows: Int
](
    columns: Int,
    depth: Int,
    a: Matrix[a_type],
    b: Matrix[b_type],
    c: Address[sum],
    row: Int,
    added: Bool,
    following: Matrix[b_type],
    first: Int,
    last: Int,
):
    """The dot products of `rows` rows with a group of columns, while columns `first` to `last` of
    the `following` group come nearer."""
    comptime width = simd_width_of[sum]()
    comptime line = CACHE_LINE // size_of[Scalar[b_type]]()
    var sums = Array[SIMD[sum, width], rows * ACROSS](fill=SIMD[sum, width](0))
    var whole = depth // width * width
    var right = Array[Address[b_type], ACROSS](fill=b.at(0, 0))
    comptime for s in range(ACROSS):
        right[s] = b.at(0, min(s, columns - 1))
    for q in range(0, whole, width):
        var left = Array[SIMD[sum, width], rows](fill=SIMD[sum, width](0))
        comptime for r in range(rows):
            left[r] = a.at(r, q).unsafe_load[width=width](0).cast[sum]()
        comptime for s in range(ACROSS):
            var v = widened[sum](right[s].unsafe_load[width=width](q))
            comptime for r in range(rows):
                sums[r * ACROSS + s] = left[r].fma(v, sums[r * ACROSS + s])
        if q % line == 0:
            for s in range(first, last):
                prefetch[PrefetchOptions().for_read().medium_locality().to_data_cache()](
                    following.at(q, s)
                )
    if whole < depth:
        # The rest of the lines, with zeros behind it.
        var inside = below[width](depth - whole)
        var left = Array[SIMD[sum, width], rows](fill=SIMD[sum, width](0))
        comptime for r in range(rows):
            left[r] = _rest[sum](a.at(r, whole), inside)
        comptime for s in range(ACROSS):
            var v = _rest[sum](right[s].unsafe_offset(whole), inside)
            comptime for r in range(rows):
                sums[r * ACROSS + s] = left[r].fma(v, sums[r * ACROSS + s])
    comptime some = min(width, ACROSS)
    comptime for r in range(rows):
        comptime for s in range(0, ACROSS, some):
            var totals = totals[some](sums, r * ACROSS + s)
            if columns == ACROSS:
                var to = c.unsafe_offset(r * row + s)
                if added:
                    totals += to.unsafe_load[width=some](0)
                to.unsafe_store[width=some](0, totals)
            else:
                for t in range(min(some, columns - s)):
                    var place = r * row + s + t
                    if added:
                        totals[t] += c[unsafe_offset=place]
                    c[unsafe_offset=place] = totals[t]
