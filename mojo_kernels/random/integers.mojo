"""Random integers of any range, without bias."""

from extensibility import OutputTensor, register
from max.gpu.host import DeviceContext

from .philox import Blocks, Memory, Stream, Words, each_block, memory, put


@fieldwise_init
struct _Integers[dtype: DType, wide: Bool](Blocks):
    """`low` + an unbiased number below `span` (Lemire, "Fast random integer
    generation in an interval", 2019); a span of 0 means 2^64."""

    comptime WORDS = 2 if Self.wide else 1

    var to: Memory[Self.dtype]
    var n: Int
    var low: Int64
    var span: UInt64
    # Products whose less significant word is below this are drawn again.
    var spoiled: UInt64
    var stream: Stream

    @always_inline
    def write[W: SIMDLength](self, words: Words[W], at: Int):
        comptime if Self.wide:
            self._two_words(words.first(), at)
            self._two_words(words.second(), at + 16)
        else:
            self._one_word(words.a, at)
            self._one_word(words.b, at + 16)
            self._one_word(words.c, at + 32)
            self._one_word(words.d, at + 48)

    @always_inline
    def _one_word[W: SIMDLength, //](self, w: SIMD[DType.uint32, W], at: Int):
        var product = w.cast[DType.uint64]() * self.span
        var chosen = product >> 32
        var rejected = (product & 0xFFFFFFFF).lt(self.spoiled)
        if rejected.reduce_or():
            for i in range(Int(W)):
                if rejected[i]:
                    chosen[i] = self._again(at + i)
        self._put(chosen, at)

    @always_inline
    def _two_words[W: SIMDLength, //](self, w: SIMD[DType.uint64, W], at: Int):
        var chosen = w
        if self.span != 0:
            var low = w * self.span
            chosen = high_product(w, SIMD[DType.uint64, W](self.span))
            var rejected = low.lt(self.spoiled)
            if rejected.reduce_or():
                for i in range(Int(W)):
                    if rejected[i]:
                        chosen[i] = self._again(at + i)
        self._put(chosen, at)

    def _again(self, element: Int) -> UInt64:
        var attempt = 1
        while True:
            var words = self.stream.again(element, attempt)
            comptime if Self.wide:
                if words.first() * self.span >= self.spoiled:
                    return high_product(words.first(), UInt64(self.span))
            else:
                var product = words.a.cast[DType.uint64]() * self.span
                if product & 0xFFFFFFFF >= self.spoiled:
                    return product >> 32
            attempt += 1

    @always_inline
    def _put[W: SIMDLength, //](self, chosen: SIMD[DType.uint64, W], at: Int):
        var value = chosen.cast[DType.int64]() + self.low
        put(self.to, at, self.n, value.cast[Self.dtype]())


@always_inline
def high_product[
    W: SIMDLength
](a: SIMD[DType.uint64, W], b: SIMD[DType.uint64, W]) -> SIMD[
    DType.uint64, W
]:
    """The more significant word of the products of 64-bit words."""
    var a0 = a & 0xFFFFFFFF
    var a1 = a >> 32
    var b0 = b & 0xFFFFFFFF
    var b1 = b >> 32
    var first = a1 * b0 + ((a0 * b0) >> 32)
    var second = a0 * b1 + (first & 0xFFFFFFFF)
    return a1 * b1 + (first >> 32) + (second >> 32)


@register("tmb_randint")
struct RandInt:
    """Integers from `low` to `last`, both included."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        low: Int64,
        last: Int64,
        ctx: DeviceContext,
    ) raises:
        var n = output.size()
        if n == 0:
            return
        if last < low:
            raise Error(
                "random_ expects 'from' to be less than 'to', but got from=",
                low,
                " >= to=",
                last + 1,
            )
        comptime if dtype.is_integral():
            comptime if dtype != DType.uint64:
                if (
                    low.cast[dtype]().cast[DType.int64]() != low
                    or last.cast[dtype]().cast[DType.int64]() != last
                ):
                    raise Error(
                        "from or to - 1 is out of bounds for ", String(dtype)
                    )
            else:
                if low < 0:
                    raise Error("from is out of bounds for uint64")
        var span = last.cast[DType.uint64]() - low.cast[DType.uint64]() + 1
        var stream = Stream.of(seed, node, instance)
        var to = memory(output.unsafe_ptr())
        if span != 0 and span <= UInt64(1) << 32:
            var spoiled = ((UInt64(1) << 32) - span) % span
            var work = _Integers[dtype, False](
                to, n, low, span, spoiled, stream
            )
            each_block[target=target](work, stream, n, ctx)
        else:
            var spoiled = (0 - span) % span if span != 0 else UInt64(0)
            var work = _Integers[dtype, True](
                to, n, low, span, spoiled, stream
            )
            each_block[target=target](work, stream, n, ctx)
