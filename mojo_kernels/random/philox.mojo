"""Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC 2011) and the loop over its blocks.

Element i of a tensor depends on the key, the node and i alone. A tile is 16
blocks of 4 words: word s of lane l serves element 64 t + 16 s + l of tile t,
so that vectors of any width up to 16 store contiguous elements. Elements that
take 64 bits use words 2 s and 2 s + 1 of a tile of 32 elements.
"""

from max.gpu.host import DeviceContext
from std.math import ceildiv, iota
from std.memory import AddressSpace
from std.sys import simd_width_of

from ..core.lines import each_line

comptime LANES = 16
# Steps that one word takes, for the number of tasks.
comptime COST = 8

comptime Memory[dtype: DType] = Pointer[Scalar[dtype], MutUntrackedOrigin]


@always_inline
def memory[
    dtype: DType, //
](pointer: Pointer[
        mut=True, Scalar[dtype], _, address_space=AddressSpace.GENERIC
    ]) -> Memory[dtype]:
    """A pointer that a struct may hold."""
    return pointer.unsafe_origin_cast[MutUntrackedOrigin]()


@fieldwise_init
struct Words[W: SIMDLength](ImplicitlyCopyable, RegisterPassable):
    """The four words of `W` blocks."""

    var a: SIMD[DType.uint32, Self.W]
    var b: SIMD[DType.uint32, Self.W]
    var c: SIMD[DType.uint32, Self.W]
    var d: SIMD[DType.uint32, Self.W]

    @always_inline
    def first(self) -> SIMD[DType.uint64, Self.W]:
        """Words a and b as one."""
        return _joined(self.a, self.b)

    @always_inline
    def second(self) -> SIMD[DType.uint64, Self.W]:
        """Words c and d as one."""
        return _joined(self.c, self.d)


@always_inline
def _joined[
    W: SIMDLength
](low: SIMD[DType.uint32, W], high: SIMD[DType.uint32, W]) -> SIMD[
    DType.uint64, W
]:
    return (high.cast[DType.uint64]() << 32) | low.cast[DType.uint64]()


@always_inline
def philox[
    W: SIMDLength
](key: UInt64, counter: Words[W]) -> Words[W]:
    """The words of `W` counters, as in Random123's philox4x32 with 10 rounds.
    """
    var c = counter
    var k0 = key.cast[DType.uint32]()
    var k1 = (key >> 32).cast[DType.uint32]()
    comptime for _ in range(10):
        var p = c.a.cast[DType.uint64]() * 0xD2511F53
        var q = c.c.cast[DType.uint64]() * 0xCD9E8D57
        c = Words[W](
            (q >> 32).cast[DType.uint32]() ^ c.b ^ k0,
            q.cast[DType.uint32](),
            (p >> 32).cast[DType.uint32]() ^ c.d ^ k1,
            p.cast[DType.uint32](),
        )
        k0 += 0x9E3779B9
        k1 += 0xBB67AE85
    return c


@fieldwise_init
struct Stream(ImplicitlyCopyable, RegisterPassable):
    """The draws of one random node in one call.

    `key` is the call's seed, `node` the number of the node in its graph and
    `instance` that of the layer, where layers share their code.
    """

    var key: UInt64
    var node: UInt32
    var instance: UInt32

    @staticmethod
    @always_inline
    def of(seed: Int64, node: Int64, instance: Int64) -> Self:
        """The stream of scalars as the graph passes them."""
        return Self(
            seed.cast[DType.uint64](),
            node.cast[DType.uint32](),
            instance.cast[DType.uint32](),
        )

    @always_inline
    def blocks[W: SIMDLength](self, first: Int) -> Words[W]:
        """The words of blocks `first` to `first + W - 1`, all in one tile."""
        var low = UInt64(first).cast[DType.uint32]()
        var high = (UInt64(first) >> 32).cast[DType.uint32]()
        return philox[W](
            self.key,
            Words[W](
                low + iota[DType.uint32, W](),
                high,
                self.node,
                self.instance,
            ),
        )

    @always_inline
    def again(self, element: Int, attempt: Int) -> Words[1]:
        """Further words for an element that needs an unknown number of them.

        Attempts from 1 share no counter with `blocks`, whose indices stay
        below 2^48.
        """
        var low = UInt64(element).cast[DType.uint32]()
        var high = (UInt64(element) >> 32).cast[DType.uint32]()
        high |= UInt32(attempt) << 16
        return philox[1](
            self.key, Words[1](low, high, self.node, self.instance)
        )


trait Blocks(Deinitable, ImplicitlyCopyable, RegisterPassable):
    """What is made of the words of blocks."""

    comptime WORDS: Int
    """Words that one element takes: 1 or 2."""

    def write[W: SIMDLength](self, words: Words[W], at: Int):
        """Writes the elements from `at`, `at + 16`, ..., `W` of each."""
        ...


@always_inline
def each_block[
    Work: Blocks, //, target: StaticString
](work: Work, stream: Stream, n: Int, ctx: DeviceContext) raises:
    """Gives `work` the blocks of `n` elements."""
    comptime slots = 4 // Work.WORDS
    var tiles = ceildiv(n, LANES * slots)
    comptime if target == "cpu":
        comptime W = min(LANES, simd_width_of[DType.float32]())

        @always_inline
        def tile(t: Int) {var work, var stream}:
            comptime for lane in range(0, LANES, W):
                work.write(
                    stream.blocks[W](t * LANES + lane),
                    t * LANES * slots + lane,
                )

        each_line[target=target](tile, tiles, LANES * 4 * COST, ctx)
    else:

        @always_inline
        def block(b: Int) {var work, var stream}:
            var t = b // LANES
            work.write(
                stream.blocks[1](b), t * LANES * slots + (b - t * LANES)
            )

        each_line[target=target](block, tiles * LANES, 1, ctx)


@always_inline
def put[
    dtype: DType, W: SIMDLength, //
](
    to: Memory[dtype],
    at: Int,
    n: Int,
    values: SIMD[dtype, W],
):
    """Stores what of `values` lies before element `n`."""
    comptime if dtype == DType.bool:
        put(
            to.unsafe_bitcast[Scalar[DType.uint8]](),
            at,
            n,
            values.cast[DType.uint8](),
        )
    else:
        if at + Int(W) <= n:
            to.unsafe_store(at, values)
        else:
            for i in range(Int(W)):
                if at + i < n:
                    to[unsafe_offset=at + i] = values[i]


@always_inline
def take[
    dtype: DType, //, W: SIMDLength
](
    source: Memory[dtype], at: Int, n: Int
) -> SIMD[dtype, W]:
    """Loads elements; 0 from element `n` on."""
    if at + Int(W) <= n:
        return source.unsafe_load[width=W](at)
    var values = SIMD[dtype, W](0)
    for i in range(Int(W)):
        if at + i < n:
            values[i] = source[unsafe_offset=at + i]
    return values
