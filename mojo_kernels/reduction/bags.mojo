"""Reductions of bags of rows and of segments."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.sys import simd_width_of

from ..core.indices import check_range
from ..core.lines import each_line
from ..core.memory import Address, untracked
from ..indexing.combining import combined, neutral


# Vectors of a row whose sums are in registers while the rows of a bag are added up.
comptime VECTORS = 8


@fieldwise_init
struct _Bag[dtype: DType](TrivialRegisterPassable):
    """The rows `table[index[j], columns]` of a bag, each times `scales[j]` if they are `scaled`."""

    var table: Address[Self.dtype]
    var rows: Int
    var columns: Int
    var index: Address[DType.int64]
    var scales: Address[Self.dtype]
    var scaled: Bool
    var count: Int
    var left_out: Int

    @always_inline
    def row(self, j: Int) -> Int:
        """The number of a row, -1 if it counts for nothing."""
        var row = Int(self.index[unsafe_offset=j])
        return -1 if row == self.left_out or row >= self.rows else row

    @always_inline
    def size(self) -> Int:
        """How many rows count."""
        var used = 0
        for j in range(self.count):
            used += Int(self.row(j) >= 0)
        return used

    @always_inline
    def _add[
        width: Int, vectors: Int
    ](self, to: Address[Self.dtype], first: Int, divisor: Scalar[Self.dtype]):
        """The sums of columns from `first` on, divided by `divisor`."""
        var sums = Array[SIMD[Self.dtype, width], vectors](fill=SIMD[Self.dtype, width](0))
        for j in range(self.count):
            var row = self.row(j)
            if row < 0:
                continue
            var values = self.table.unsafe_offset(row * self.columns + first)
            var scale = SIMD[Self.dtype, width](1)
            if self.scaled:
                scale = SIMD[Self.dtype, width](self.scales[unsafe_offset=j])
            comptime for v in range(vectors):
                sums[v] += values.unsafe_load[width=width](v * width) * scale
        comptime for v in range(vectors):
            var mean = sums[v] / SIMD[Self.dtype, width](divisor)
            to.unsafe_store(first + v * width, mean)

    @always_inline
    def sum[width: Int](self, to: Address[Self.dtype], divisor: Scalar[Self.dtype]):
        """The sum of the rows, divided by `divisor`."""
        var first = 0
        comptime if width > 1:
            while first + VECTORS * width <= self.columns:
                self._add[width, VECTORS](to, first, divisor)
                first += VECTORS * width
            while first + width <= self.columns:
                self._add[width, 1](to, first, divisor)
                first += width
        while first < self.columns:
            self._add[1, 1](to, first, divisor)
            first += 1

    @always_inline
    def largest(self, to: Address[Self.dtype], places: Address[DType.int64]):
        """The largest number of each column, and the row where it is."""
        for i in range(self.columns):
            to[unsafe_offset=i] = 0
            places[unsafe_offset=i] = 0
        var first = True
        for j in range(self.count):
            var row = self.row(j)
            if row < 0:
                continue
            var values = self.table.unsafe_offset(row * self.columns)
            for i in range(self.columns):
                var value = values[unsafe_offset=i]
                if first or value > to[unsafe_offset=i]:
                    to[unsafe_offset=i] = value
                    places[unsafe_offset=i] = Int64(row)
            first = False


@register("tmb_embedding_bag")
struct EmbeddingBag:
    """The sum, mean or maximum of the rows `weight[index[j]]` of each bag, with the bag of each
    index, the size of each bag without padding, and where each maximum was found.

    Bag `b` holds the indices from `offsets[b]` to the next offset. `scales` holds a factor for
    each index, or nothing. `padding` is an index that counts for nothing (-1: none)."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=2, ...],
        bag_of: OutputTensor[dtype=DType.int64, rank=1, ...],
        sizes: OutputTensor[dtype=DType.int64, rank=1, ...],
        chosen: OutputTensor[dtype=DType.int64, rank=2, ...],
        weight: InputTensor[dtype=dtype, rank=2, ...],
        index: InputTensor[dtype=DType.int64, rank=1, ...],
        offsets: InputTensor[dtype=DType.int64, rank=1, ...],
        scales: InputTensor[dtype=dtype, rank=1, ...],
        padding: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert kind == "sum" or kind == "mean" or kind == "max", "unknown kind"
        var bags = output.dim_size[0]()
        var columns = output.dim_size[1]()
        var rows = weight.dim_size[0]()
        var count = index.dim_size[0]()
        var scaled = scales.size() != 0
        var op = untracked(output.unsafe_ptr())
        var bp = untracked(bag_of.unsafe_ptr())
        var zp = untracked(sizes.unsafe_ptr())
        var cp = untracked(chosen.unsafe_ptr())
        var wp = untracked(weight.unsafe_ptr())
        var ip = untracked(index.unsafe_ptr())
        var fp = untracked(offsets.unsafe_ptr())
        var sp = untracked(scales.unsafe_ptr())
        comptime if target == "cpu":
            check_range(ip, count, 0, rows)
            for bag in range(bags):
                var start = fp[unsafe_offset=bag]
                if bag == 0 and start != 0:
                    raise Error("offsets[0] has to be 0")
                if start > Int64(count) or (bag > 0 and start < fp[unsafe_offset=bag - 1]):
                    raise Error("offsets have to grow, up to the number of indices")
        var known = offsets.dim_size[0]()
        var left_out = Int(padding)

        @always_inline
        def work(
            bag: Int,
        ) {
            var op,
            var bp,
            var zp,
            var cp,
            var wp,
            var ip,
            var fp,
            var sp,
            var columns,
            var rows,
            var count,
            var scaled,
            var known,
            var left_out,
        }:
            var start = max(0, min(count, Int(fp[unsafe_offset=bag])))
            var end = count
            if bag + 1 < known:
                end = max(start, min(count, Int(fp[unsafe_offset=bag + 1])))
            for j in range(start, end):
                bp[unsafe_offset=j] = Int64(bag)
            comptime width = simd_width_of[dtype]() if target == "cpu" else 1
            var it = _Bag(
                wp,
                rows,
                columns,
                ip.unsafe_offset(start),
                sp.unsafe_offset(start),
                scaled,
                end - start,
                left_out,
            )
            var used = it.size()
            zp[unsafe_offset=bag] = Int64(used)
            var total = op.unsafe_offset(bag * columns)
            comptime if kind == "max":
                it.largest(total, cp.unsafe_offset(bag * columns))
            else:
                it.sum[width](total, Scalar[dtype](max(1, used) if kind == "mean" else 1))

        each_line[target=target](work, bags, columns * max(1, count // max(1, bags)), ctx)


@register("tmb_segment_reduce")
struct SegmentReduce:
    """Sum, mean, product, maximum or minimum of each segment of `x[outer, n, inner]`.

    `bounds[outer, :]` holds the lengths of the segments, or one more number than segments: where
    each begins and the last one ends. `initial` holds what a segment starts from, or nothing."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, lengths: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        bounds: InputTensor[dtype=DType.int64, rank=2, ...],
        initial: InputTensor[dtype=dtype, rank=1, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert dtype.is_floating_point(), "float only"
        comptime how = "sum" if kind == "mean" else kind
        var outer = output.dim_size[0]()
        var segments = output.dim_size[1]()
        var inner = output.dim_size[2]()
        var n = x.dim_size[1]()
        var count = bounds.dim_size[1]()
        var op = untracked(output.unsafe_ptr())
        var xp = untracked(x.unsafe_ptr())
        var bp = untracked(bounds.unsafe_ptr())
        var start_value = neutral[dtype, how]()
        comptime if target == "cpu":
            if initial.size() != 0:
                start_value = initial.unsafe_ptr()[unsafe_offset=0]
            for line in range(outer):
                var total = Int64(0)
                for s in range(count):
                    var at = bp[unsafe_offset=line * count + s]
                    if at < 0 or (not lengths and at > Int64(n)):
                        raise Error("a segment is out of bounds for a dimension of size ", n)
                    total += at
                if lengths and total > Int64(n):
                    raise Error("segments are out of bounds for a dimension of size ", n)
        var has_initial = initial.size() != 0
        var first = untracked(initial.unsafe_ptr())

        @always_inline
        def work(
            line: Int,
        ) {
            var op,
            var xp,
            var bp,
            var segments,
            var inner,
            var n,
            var count,
            var start_value,
            var has_initial,
            var first,
        }:
            var outer_line = line // inner
            var column = line % inner
            var marks = bp.unsafe_offset(outer_line * count)
            var values = xp.unsafe_offset(outer_line * n * inner + column)
            var results = op.unsafe_offset(outer_line * segments * inner + column)
            var begin = 0
            for s in range(segments):
                var end: Int
                comptime if lengths:
                    end = begin + Int(marks[unsafe_offset=s])
                else:
                    begin = Int(marks[unsafe_offset=s])
                    end = Int(marks[unsafe_offset=s + 1])
                end = min(end, n)
                var total = start_value
                comptime if target != "cpu":
                    if has_initial:
                        total = first[unsafe_offset=0]
                for j in range(begin, end):
                    total = combined[how](total, values[unsafe_offset=j * inner])
                comptime if kind == "mean":
                    if end > begin or not has_initial:
                        total /= Scalar[dtype](max(0, end - begin))
                results[unsafe_offset=s * inner] = total
                comptime if lengths:
                    begin = end

        each_line[target=target](work, outer * inner, n, ctx)
