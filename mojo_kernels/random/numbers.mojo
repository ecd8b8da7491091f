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
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
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
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        seed: Int64,
        node: Int64,
        instance: Int64,
        p: Float64,
        ctx: DeviceContext,
    ) raises:
        var n = output.size()
        var work = _Bernoulli[dtype](
            memory(output.unsafe_ptr()), n, _threshold(p)
        )
        each_block[target=target](
            work, Stream.of(seed, node, instance), n, ctx
        )


@fieldwise_init
struct _Given[dtype: DType, of: DType, kind: StaticString, checked: Bool](
    Blocks
):
    """Numbers with a parameter of their own each."""

    comptime wide = Self.kind == "normal" and Self.dtype == DType.float64
    comptime WORDS = 2 if Self.wide else 1

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
        //,
        kind: StaticString,
        target: StaticString,
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        given: InputTensor[dtype=of, rank=1, ...],
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
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=1, ...],
        mask: OutputTensor[dtype=DType.bool, rank=1, ...],
        x: InputTensor[dtype=dtype, rank=1, ...],
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
