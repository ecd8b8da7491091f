"""Samples of positions by their weights."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext

from .distributions import minus_log_uniform, uniform
from ..core.lines import each_line
from .philox import Blocks, Memory, Stream, Words, each_block, memory, put


@always_inline
def _verdict(fine: Bool, total: Float64) -> UInt8:
    """What `_check` has to say of a row of weights."""
    if not fine:
        return 1
    return 0 if total > 0 else 2


def _check(wrong: List[UInt8]) raises:
    for flag in wrong:
        if flag == 1:
            raise Error(
                "probability tensor contains either `inf`, `nan` or element < 0"
            )
        if flag == 2:
            raise Error(
                "invalid multinomial distribution (sum of probabilities <= 0)"
            )


@register("tmb_multinomial_replaced")
struct MultinomialReplaced:
    """Positions in each row of weights, with replacement. `sums` is scratch.

    Raises at a weight that is negative, infinite or NaN and at a row of zeros,
    on CPU.
    """

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=2, ...],
        sums: OutputTensor[dtype=DType.float64, rank=2, ...],
        weights: InputTensor[dtype=dtype, rank=2, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        ctx: DeviceContext,
    ) raises:
        var rows = weights.dim_size[0]()
        var n = weights.dim_size[1]()
        var samples = output.dim_size[1]()
        var wrong = List[UInt8](length=rows, fill=0)
        var flags = memory(wrong.unsafe_ptr())
        var given = memory(weights.unsafe_ptr())
        var totals = memory(sums.unsafe_ptr())
        var to = memory(output.unsafe_ptr())
        var stream = Stream.of(seed, node, instance)

        @always_inline
        def add_up(row: Int) {var given, var totals, var flags, var n}:
            var total = Float64(0)
            var fine = True
            for i in range(row * n, (row + 1) * n):
                var weight = given[unsafe_offset=i].cast[DType.float64]()
                fine = fine and weight >= 0 and weight * 0 == 0
                total += weight
                totals[unsafe_offset=i] = total
            comptime if target == "cpu":
                flags[unsafe_offset=row] = _verdict(fine, total)

        each_line[target=target](add_up, rows, n, ctx)
        _check(wrong)

        @always_inline
        def draw(i: Int) {var totals, var to, var stream, var n, var samples}:
            var start = i // samples * n
            var words = stream.again(i, 1)
            var u = uniform[DType.float64](words.first(), 53)
            var wanted = u * totals[unsafe_offset=start + n - 1]
            # The first sum beyond: never one that a weight of 0 left as it was.
            var low = 0
            var high = n - 1
            while low < high:
                var middle = (low + high) // 2
                if totals[unsafe_offset=start + middle] > wanted:
                    high = middle
                else:
                    low = middle + 1
            to[unsafe_offset=i] = Int64(low)

        each_line[target=target](draw, rows * samples, 100, ctx)


@fieldwise_init
struct _Race[dtype: DType](Blocks):
    """The time at which each position arrives, at the rate of its weight."""

    comptime WORDS = 2

    var to: Memory[DType.float64]
    var weights: Memory[Self.dtype]
    var n: Int

    @always_inline
    def write[W: SIMDLength](self, words: Words[W], at: Int):
        self._one(words.first(), at)
        self._one(words.second(), at + 16)

    @always_inline
    def _one[W: SIMDLength, //](self, w: SIMD[DType.uint64, W], at: Int):
        var times = minus_log_uniform[DType.float64](w)
        for i in range(Int(W)):
            if at + i < self.n:
                var weight = self.weights[unsafe_offset=at + i]
                times[i] = times[i] / weight.cast[DType.float64]()
        put(self.to, at, self.n, times)


@register("tmb_multinomial")
struct Multinomial:
    """Positions in each row of weights, without replacement: those that arrive
    first (Efraimidis and Spirakis, 2006). The other outputs are scratch.

    Raises as with replacement. Positions of weight 0 come last.
    """

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=2, ...],
        times: OutputTensor[dtype=DType.float64, rank=2, ...],
        heaps: OutputTensor[dtype=DType.int64, rank=2, ...],
        weights: InputTensor[dtype=dtype, rank=2, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        ctx: DeviceContext,
    ) raises:
        var rows = weights.dim_size[0]()
        var n = weights.dim_size[1]()
        var samples = output.dim_size[1]()
        if samples > n:
            raise Error(
                "cannot sample n_sample > prob_dist.size(-1) samples without"
                " replacement"
            )
        var given = memory(weights.unsafe_ptr())
        var wrong = List[UInt8](length=rows, fill=0)
        comptime if target == "cpu":
            var flags = memory(wrong.unsafe_ptr())

            @always_inline
            def check(row: Int) {var given, var flags, var n}:
                var total = Float64(0)
                var fine = True
                for i in range(row * n, (row + 1) * n):
                    var weight = given[unsafe_offset=i].cast[DType.float64]()
                    fine = fine and weight >= 0 and weight * 0 == 0
                    total += weight
                flags[unsafe_offset=row] = _verdict(fine, total)

            each_line[target=target](check, rows, n, ctx)
            _check(wrong)
        var keys = memory(times.unsafe_ptr())
        var heap = memory(heaps.unsafe_ptr())
        var to = memory(output.unsafe_ptr())
        each_block[target=target](
            _Race[dtype](keys, given, rows * n),
            Stream.of(seed, node, instance),
            rows * n,
            ctx,
        )

        @always_inline
        def choose(
            row: Int,
        ) {var keys, var heap, var to, var n, var samples}:
            var key = keys.unsafe_offset(row * n)
            var order = heap.unsafe_offset(row * n)
            for i in range(n):
                order[unsafe_offset=i] = Int64(i)
            for i in range(n // 2 - 1, -1, -1):
                _sift(key, order, i, n)
            for k in range(samples):
                to[unsafe_offset=row * samples + k] = order[unsafe_offset=0]
                var left = n - 1 - k
                order[unsafe_offset=0] = order[unsafe_offset=left]
                _sift(key, order, 0, left)

        each_line[target=target](choose, rows, n * 4 + samples * 64, ctx)


@always_inline
def _sooner(key: Memory[DType.float64], a: Int64, b: Int64) -> Bool:
    var at_a = key[unsafe_offset=Int(a)]
    var at_b = key[unsafe_offset=Int(b)]
    return at_a < at_b or (at_a == at_b and a < b)


@always_inline
def _sift(
    key: Memory[DType.float64],
    order: Memory[DType.int64],
    start: Int,
    n: Int,
):
    """Lets the entry at `start` of a heap of `n` sink to its place."""
    if start >= n:
        return
    var item = order[unsafe_offset=start]
    var at = start
    while 2 * at + 1 < n:
        var child = 2 * at + 1
        if child + 1 < n and _sooner(
            key, order[unsafe_offset=child + 1], order[unsafe_offset=child]
        ):
            child += 1
        if not _sooner(key, order[unsafe_offset=child], item):
            break
        order[unsafe_offset=at] = order[unsafe_offset=child]
        at = child
    order[unsafe_offset=at] = item
