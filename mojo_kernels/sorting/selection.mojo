"""The first values of sorted lines, and those of a rank. NaN counts as the greatest."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.bit import count_trailing_zeros
from std.memory import pack_bits
from std.sys import simd_width_of, size_of
from std.utils.numerics import isnan

from ..core.lines import each_line
from ..core.memory import Address, untracked
from .radix import before, key_of, key_type, radix_select, radix_sort


@register("tmb_topk")
struct TopK:
    """The first `k` values of the sorted line and where they stood, for a
    small `k`: a sorted list that most values never enter."""

    @staticmethod
    def execute[
        dtype: DType, //, descending: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=2, ...],
        indices: OutputTensor[dtype=DType.int64, rank=2, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        if values.size() == 0:
            return
        var n = x.dim_size[1]()
        var k = values.dim_size[1]()
        var source = untracked(x.unsafe_ptr())
        var best = untracked(values.unsafe_ptr())
        var positions = untracked(indices.unsafe_ptr())

        @always_inline
        def work(
            line: Int,
        ) {var source, var best, var positions, var n, var k}:
            var from_ = source.unsafe_offset(line * n)
            var v = best.unsafe_offset(line * k)
            var i = positions.unsafe_offset(line * k)
            comptime if target == "cpu":
                if k <= FEW or n < 1024 or k * 16 > n:
                    _by_insertion[simd_width_of[dtype](), descending](from_, n, k, v, i)
                else:
                    select_line[descending](from_, n, k, v, i)
            else:
                _by_insertion[1, descending](from_, n, k, v, i)

        each_line[target=target](work, x.size() // n, n, ctx)


comptime SELECT_BITS = 11
# Of so few values each is sooner put in its place than counted by its digits.
comptime FEW = 32


@always_inline
def _insert[
    dtype: DType, //, descending: Bool
](
    value: Scalar[dtype],
    index: Int,
    place: Int,
    values: Address[dtype],
    indices: Address[DType.int64],
):
    """Puts a value among the ordered ones before a place, whose last makes room."""
    var to = place
    while to > 0 and before[descending](value, values[unsafe_offset=to - 1]):
        values[unsafe_offset=to] = values[unsafe_offset=to - 1]
        indices[unsafe_offset=to] = indices[unsafe_offset=to - 1]
        to -= 1
    values[unsafe_offset=to] = value
    indices[unsafe_offset=to] = Int64(index)


def _by_insertion[
    dtype: DType, //, width: Int, descending: Bool
](
    source: Address[dtype],
    n: Int,
    k: Int,
    values: Address[dtype],
    indices: Address[DType.int64],
):
    """A sorted list, which most values never enter."""
    for at in range(k):
        _insert[descending](source[unsafe_offset=at], at, at, values, indices)
    var at = k
    comptime if width > 1:
        while at + width <= n:
            var left = pack_bits(
                _maybe_before[descending](
                    source.unsafe_load[width=width](at), values[unsafe_offset=k - 1]
                )
            )
            while left != 0:
                var j = at + Int(count_trailing_zeros(left))
                left &= left - 1
                var value = source[unsafe_offset=j]
                if before[descending](value, values[unsafe_offset=k - 1]):
                    _insert[descending](value, j, k - 1, values, indices)
            at += width
    for j in range(at, n):
        var value = source[unsafe_offset=j]
        if before[descending](value, values[unsafe_offset=k - 1]):
            _insert[descending](value, j, k - 1, values, indices)


@always_inline
def _maybe_before[
    dtype: DType, width: SIMDLength, //, descending: Bool
](block: SIMD[dtype, width], worst: Scalar[dtype]) -> SIMD[DType.bool, width]:
    """Which numbers stand before one, and all where one is NaN."""
    comptime if descending:
        return ~block.le(worst)
    else:
        return ~block.ge(worst)


def select_line[
    dtype: DType, //, descending: Bool
](
    source: Address[dtype],
    n: Int,
    k: Int,
    values: Address[dtype],
    indices: Address[DType.int64],
):
    """The first `k` of the `n` sorted values and where they stood."""
    if k * 16 <= n:
        _by_threshold[descending](source, n, k, values, indices)
    else:
        _by_digit[descending](source, n, k, values, indices)


def _by_digit[
    dtype: DType, //, descending: Bool
](
    source: Address[dtype],
    n: Int,
    k: Int,
    values: Address[dtype],
    indices: Address[DType.int64],
):
    """Sorts what the first digit cannot rule out."""
    comptime bits = 8 * size_of[Scalar[dtype]]()
    comptime shift = max(0, bits - SELECT_BITS)
    comptime Key = Scalar[key_type[dtype]()]
    var counts = Array[Int32, 1 << SELECT_BITS](fill=0)
    for at in range(n):
        counts[Int(key_of[descending](source[unsafe_offset=at]) >> Key(shift))] += 1
    var last = -1
    var m = 0
    while m < k:
        last += 1
        m += Int(counts[last])
    var kept = _Candidates[dtype](m)
    for at in range(n):
        var value = source[unsafe_offset=at]
        if Int(key_of[descending](value) >> Key(shift)) <= last:
            kept.add(value, at)
    kept.first[descending](k, values, indices)


def _by_threshold[
    dtype: DType, //, descending: Bool
](
    source: Address[dtype],
    n: Int,
    k: Int,
    values: Address[dtype],
    indices: Address[DType.int64],
):
    """Collects what stands before the worst of `k` values found so far, and sorts that whenever
    it fills its memory."""
    comptime width = simd_width_of[dtype]()
    var room = 3 * k
    var kept = _Candidates[dtype](room)
    for at in range(room):
        kept.add(source[unsafe_offset=at], at)
    kept.keep[descending](k)
    var worst = kept.value(k - 1)
    var at = room
    while at < n:
        if at + width <= n:
            var block = source.unsafe_load[width=width](at)
            if not _maybe_before[descending](block, worst).reduce_or():
                at += width
                continue
        for j in range(at, min(at + width, n)):
            var value = source[unsafe_offset=j]
            if before[descending](value, worst):
                if kept.count == room:
                    kept.keep[descending](k)
                    worst = kept.value(k - 1)
                kept.add(value, j)
        at += width
    kept.first[descending](k, values, indices)


struct _Candidates[dtype: DType]:
    """Values and where they stood, with memory to sort them."""

    var values: List[Scalar[Self.dtype]]
    var indices: List[Int64]
    var room: Int
    var count: Int

    def __init__(out self, room: Int):
        self.values = List[Scalar[Self.dtype]](unsafe_uninit_length=3 * room)
        self.indices = List[Int64](unsafe_uninit_length=3 * room)
        self.room = room
        self.count = 0

    @always_inline
    def add(mut self, value: Scalar[Self.dtype], at: Int):
        self.values.unsafe_ptr()[unsafe_offset=self.count] = value
        self.indices.unsafe_ptr()[unsafe_offset=self.count] = Int64(at)
        self.count += 1

    @always_inline
    def value(self, at: Int) -> Scalar[Self.dtype]:
        return self.values.unsafe_ptr()[unsafe_offset=at]

    def first[
        descending: Bool
    ](
        mut self,
        k: Int,
        to_values: Address[Self.dtype],
        to_indices: Address[DType.int64],
    ):
        """The first `k` in order."""
        var v = untracked(self.values.unsafe_ptr())
        var i = untracked(self.indices.unsafe_ptr())
        var sorted_v = v.unsafe_offset(self.room)
        var sorted_i = i.unsafe_offset(self.room)
        radix_sort[descending](
            v,
            self.count,
            sorted_v,
            sorted_i,
            v.unsafe_offset(2 * self.room),
            i.unsafe_offset(2 * self.room),
        )
        for j in range(k):
            to_values[unsafe_offset=j] = sorted_v[unsafe_offset=j]
            to_indices[unsafe_offset=j] = i[unsafe_offset = Int(sorted_i[unsafe_offset=j])]

    def keep[descending: Bool](mut self, k: Int):
        """Forgets all but the first `k`, which are in order then."""
        var v = untracked(self.values.unsafe_ptr())
        var i = untracked(self.indices.unsafe_ptr())
        var spare = 2 * self.room
        self.first[descending](k, v.unsafe_offset(spare), i.unsafe_offset(spare))
        for j in range(k):
            v[unsafe_offset=j] = v[unsafe_offset=spare + j]
            i[unsafe_offset=j] = i[unsafe_offset=spare + j]
        self.count = k


@register("tmb_select")
struct Select:
    """The first `k` values of the sorted line and where they stood, for a large `k`."""

    @staticmethod
    def execute[
        dtype: DType, //, descending: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=2, ...],
        indices: OutputTensor[dtype=DType.int64, rank=2, ...],
        x: InputTensor[dtype=dtype, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "it needs memory for each line"
        if values.size() == 0:
            return
        var n = x.dim_size[1]()
        var k = values.dim_size[1]()
        var source = untracked(x.unsafe_ptr())
        var best = untracked(values.unsafe_ptr())
        var positions = untracked(indices.unsafe_ptr())

        @always_inline
        def work(line: Int) {var source, var best, var positions, var n, var k}:
            select_line[descending](
                source.unsafe_offset(line * n),
                n,
                k,
                best.unsafe_offset(line * k),
                positions.unsafe_offset(line * k),
            )

        each_line[target=target](work, x.size() // n, n * 4, ctx)


@register("tmb_order_statistic")
struct OrderStatistic:
    """The value of a rank in each line of `[outer, n, inner]`, and where it stands: the first
    one of its rank in a stable sort.

    `kind`: "kth" (rank `k`, from 0), "median" (the lower one; the first NaN if there is one)
    or "nanmedian" (the lower one among those that are not NaN)."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=3, ...],
        indices: OutputTensor[dtype=DType.int64, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        k: Int64,
        ctx: DeviceContext,
    ) raises:
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        if values.size() == 0 or n == 0:
            return
        comptime if kind == "kth":
            if k < 0 or k >= Int64(n):
                raise Error("k is out of bounds for a dimension of size ", n)
        var source = untracked(x.unsafe_ptr())
        var result = untracked(values.unsafe_ptr())
        var positions = untracked(indices.unsafe_ptr())
        var sought = Int(k)

        @always_inline
        def work(
            line: Int,
        ) {var source, var result, var positions, var n, var inner, var sought}:
            var base = source.unsafe_offset((line // inner) * n * inner + line % inner)
            var rank = sought
            var at = -1
            comptime if kind != "kth":
                var good = n
                comptime if dtype.is_floating_point():
                    for j in range(n):
                        if isnan(base[unsafe_offset=j * inner]):
                            good -= 1
                            if at < 0:
                                at = j
                rank = (good - 1) // 2
                comptime if kind == "nanmedian":
                    if good > 0:
                        at = -1
            if at < 0:
                at = radix_select(base, n, inner, rank)[0]
            result[unsafe_offset=line] = base[unsafe_offset=at * inner]
            positions[unsafe_offset=line] = Int64(at)

        each_line[target=target](work, values.size(), n * 8, ctx)
