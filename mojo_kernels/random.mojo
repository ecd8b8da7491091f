"""Random numbers that depend on the seed, the node and the element alone."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceil

from .distributions import cauchy, minus_log_uniform, normals, uniform
from .philox import (
    Blocks,
    Memory,
    Stream,
    Words,
    each_block,
    memory,
    put,
    take,
)


@fieldwise_init
struct _Numbers[dtype: DType, kind: StaticString](Blocks):
    """Numbers of one distribution with parameters `a` and `b`."""

    comptime WORDS = 2 if Self.dtype == DType.float64 else 1

    var to: Memory[Self.dtype]
    var n: Int
    var a: Scalar[Self.dtype]
    var b: Scalar[Self.dtype]
    var digits: Int

    @always_inline
    def write[W: SIMDLength](self, words: Words[W], at: Int):
        comptime if Self.WORDS == 2:
            self._pair(words.first(), words.second(), at)
        else:
            self._pair(words.a, words.b, at)
            self._pair(words.c, words.d, at + 32)

    @always_inline
    def _pair[
        word: DType, W: SIMDLength, //
    ](self, v: SIMD[word, W], w: SIMD[word, W], at: Int):
        comptime if Self.kind == "normal":
            var pair = normals[Self.dtype](v, w)
            put(self.to, at, self.n, self.a + self.b * pair.cos)
            put(self.to, at + 16, self.n, self.a + self.b * pair.sin)
        else:
            put(self.to, at, self.n, self._one(v))
            put(self.to, at + 16, self.n, self._one(w))

    @always_inline
    def _one[
        word: DType, W: SIMDLength, //
    ](self, w: SIMD[word, W]) -> SIMD[Self.dtype, W]:
        comptime if Self.kind == "uniform":
            return uniform[Self.dtype](w, self.digits) * self.b + self.a
        elif Self.kind == "exponential":
            return minus_log_uniform[Self.dtype](w) * self.a
        elif Self.kind == "geometric":
            return max(ceil(minus_log_uniform[Self.dtype](w) * self.a), 1)
        else:
            comptime assert Self.kind == "cauchy", "no such distribution"
            return self.a + self.b * cauchy[Self.dtype](w)


@register("tmb_random")
struct Random:
    """Independent numbers of a distribution.

    uniform: a + b u, u of `digits` binary digits; normal: a + b z; exponential:
    a e; geometric: max(ceil(a e), 1); cauchy: a + b c.
    """

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        a: Float64,
        b: Float64,
        digits: Int64,
        ctx: DeviceContext,
    ) raises:
        var work = _Numbers[dtype, kind](
            memory(output.unsafe_ptr()),
            output.size(),
            a.cast[dtype](),
            b.cast[dtype](),
            Int(digits),
        )
        var stream = Stream.of(seed, node, instance)
        each_block[target=target](work, stream, output.size(), ctx)


@always_inline
def _threshold(p: Float64) -> UInt64:
    """Of a 32-bit word: it is below with probability p, to 2^-33."""
    return (p * 4294967296.0 + 0.5).cast[DType.uint64]()


@always_inline
def _below[
    W: SIMDLength
](w: SIMD[DType.uint32, W], threshold: UInt64) -> SIMD[DType.bool, W]:
    # Of a threshold of 2^32 only the less significant word is compared.
    var least = SIMD[DType.uint32, W](threshold.cast[DType.uint32]())
    return w.lt(least) | SIMD[DType.bool, W](fill=threshold >> 32 != 0)


@fieldwise_init
struct _Bernoulli[dtype: DType](Blocks):
    comptime WORDS = 1

    var to: Memory[Self.dtype]
    var n: Int
    var threshold: UInt64

    @always_inline
    def write[W: SIMDLength](self, words: Words[W], at: Int):
        self._one(words.a, at)
        self._one(words.b, at + 16)
        self._one(words.c, at + 32)
        self._one(words.d, at + 48)

    @always_inline
    def _one[W: SIMDLength, //](self, w: SIMD[DType.uint32, W], at: Int):
        var hit = _below(w, self.threshold)
        put(self.to, at, self.n, hit.cast[Self.dtype]())


@register("tmb_bernoulli")
struct Bernoulli:
    """1 with probability `p`, else 0."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        p: Float64,
        ctx: DeviceContext,
    ) raises:
        var n = output.size()
        var work = _Bernoulli[dtype](memory(output.unsafe_ptr()), n, _threshold(p))
        each_block[target=target](
            work, Stream.of(seed, node, instance), n, ctx
        )


@fieldwise_init
struct _Given[dtype: DType, of: DType, kind: StaticString, checked: Bool](
    Blocks
):
    """Numbers with a parameter of their own each."""

    comptime WORDS = 2 if Self.kind == "normal" and Self.dtype == DType.float64 else 1

    var to: Memory[Self.dtype]
    var given: Memory[Self.of]
    var n: Int
    # Set to 1 at a parameter outside of its range.
    var wrong: Memory[DType.uint8]

    @always_inline
    def write[W: SIMDLength](self, words: Words[W], at: Int):
        comptime if Self.WORDS == 2:
            self._pair(words.first(), words.second(), at)
        else:
            self._pair(words.a, words.b, at)
            self._pair(words.c, words.d, at + 32)

    @always_inline
    def _pair[
        word: DType, W: SIMDLength, //
    ](self, v: SIMD[word, W], w: SIMD[word, W], at: Int):
        comptime if Self.kind == "normal":
            var pair = normals[Self.dtype](v, w)
            self._scaled(pair.cos, at)
            self._scaled(pair.sin, at + 16)
        else:
            comptime assert Self.kind == "bernoulli", "no such distribution"
            self._hit(v, at)
            self._hit(w, at + 16)

    @always_inline
    def _scaled[W: SIMDLength, //](self, z: SIMD[Self.dtype, W], at: Int):
        var std = take[W](self.given, at, self.n).cast[Self.dtype]()
        comptime if Self.checked:
            if not std.ge(0).reduce_and():
                self.wrong[unsafe_offset=0] = 1
        put(self.to, at, self.n, z * std)

    @always_inline
    def _hit[
        word: DType, W: SIMDLength, //
    ](self, w: SIMD[word, W], at: Int):
        var p = take[W](self.given, at, self.n)
        comptime if Self.checked:
            if not (p.ge(0) & p.le(1)).reduce_and():
                self.wrong[unsafe_offset=0] = 1
        # In (0, 1], so never for p = 0 and always for p = 1.
        comptime unit = Scalar[Self.of](1.0 / 4294967296.0)
        var u = (w.cast[Self.of]() + 0.5) * unit
        put(self.to, at, self.n, u.le(p).cast[Self.dtype]())


@register("tmb_random_given")
struct RandomGiven:
    """A number for each parameter: bernoulli of its probability, or normal of
    its standard deviation and mean 0.

    Raises at a parameter outside of its range, on CPU.
    """

    @staticmethod
    def execute[
        dtype: DType,
        of: DType,
        rank: Int,
        //,
        kind: StaticString,
        target: StaticString,
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        given: InputTensor[dtype=of, rank=rank, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        ctx: DeviceContext,
    ) raises:
        var wrong = List[UInt8](length=1, fill=0)
        var n = output.size()
        var work = _Given[dtype, of, kind, target == "cpu"](
            memory(output.unsafe_ptr()),
            memory(given.unsafe_ptr()),
            n,
            memory(wrong.unsafe_ptr()),
        )
        each_block[target=target](
            work, Stream.of(seed, node, instance), n, ctx
        )
        if wrong[0] != 0:
            comptime if kind == "normal":
                raise Error("normal expects all elements of std >= 0.0")
            else:
                raise Error("Expected p_in >= 0 && p_in <= 1 to be true")


@fieldwise_init
struct _Dropout[dtype: DType](Blocks):
    comptime WORDS = 1

    var to: Memory[Self.dtype]
    var mask: Memory[DType.bool]
    var x: Memory[Self.dtype]
    var n: Int
    var threshold: UInt64
    var scale: Scalar[Self.dtype]

    @always_inline
    def write[W: SIMDLength](self, words: Words[W], at: Int):
        self._one(words.a, at)
        self._one(words.b, at + 16)
        self._one(words.c, at + 32)
        self._one(words.d, at + 48)

    @always_inline
    def _one[W: SIMDLength, //](self, w: SIMD[DType.uint32, W], at: Int):
        var kept = _below(w, self.threshold)
        var factor = kept.select(
            SIMD[Self.dtype, W](self.scale), SIMD[Self.dtype, W](0)
        )
        put(self.to, at, self.n, take[W](self.x, at, self.n) * factor)
        put(self.mask, at, self.n, kept)


@register("tmb_dropout")
struct Dropout:
    """`x * scale` where the mask is true, `x * 0` elsewhere; and the mask, true
    with probability `keep`."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        mask: OutputTensor[dtype=DType.bool, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=rank, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        keep: Float64,
        scale: Float64,
        ctx: DeviceContext,
    ) raises:
        var work = _Dropout[dtype](
            memory(output.unsafe_ptr()),
            memory(mask.unsafe_ptr()),
            memory(x.unsafe_ptr()),
            x.size(),
            _threshold(keep),
            scale.cast[dtype](),
        )
        var stream = Stream.of(seed, node, instance)
        each_block[target=target](work, stream, x.size(), ctx)


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
        dtype: DType, rank: Int, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
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
