"""Element-wise operations of programs: on vectors, and on blocks of memory.

16-bit floats are computed in float32 and rounded after each operation, as torch does. Booleans are
bytes of 0 or 1.
"""

from std.math import ceil, floor, sqrt, trunc
from std.memory import Pointer, bitcast
from std.sys import llvm_intrinsic, simd_width_of, size_of
from std.sys.intrinsics import masked_load, masked_store
from std.utils.numerics import inf, isnan

from ..core.accumulators import both
from ..core.memory import Address, Untracked
from ..core.rounding import bits_of, from_bits
from ..core.vectors import below
from ..mathematics.doubled import is_negative
from ..mathematics.single import Single, single_rsqrt

comptime Bytes = Pointer[Int8, Untracked]
# Elements that the memory of a value has which is the same everywhere.
comptime UNIFORM = 64


def wide[dtype: DType]() -> DType:
    """The dtype to compute in."""
    comptime short = dtype == DType.float16 or dtype == DType.bfloat16
    return DType.float32 if short else dtype


def stored[dtype: DType]() -> DType:
    """The dtype of elements in memory. Of bfloat16 it is that of their bits: what passes vectors of
    it on, a branch or a function, has them as float32, and rounds each number again."""
    if dtype == DType.bfloat16:
        return DType.uint16
    return DType.uint8 if dtype == DType.bool else dtype


@always_inline
def number_from[
    memory: DType, w: SIMDLength, //, dtype: DType
](x: SIMD[memory, w]) -> SIMD[wide[dtype](), w]:
    """What is computed with, of what was in memory."""
    comptime Result = SIMD[wide[dtype](), w]
    comptime if dtype == DType.bool:
        return rebind[Result](x.ne(0))
    elif dtype == DType.bfloat16:
        return rebind[Result](from_bits(rebind[SIMD[DType.uint16, w]](x)))
    else:
        return x.cast[wide[dtype]()]()


@always_inline
def kept[
    computed: DType, w: SIMDLength, //, dtype: DType
](x: SIMD[computed, w]) -> SIMD[stored[dtype](), w]:
    """What is put into memory, of what was computed."""
    comptime if dtype == DType.bfloat16:
        return rebind[SIMD[stored[dtype](), w]](bits_of(rebind[SIMD[DType.float32, w]](x)))
    else:
        return x.cast[stored[dtype]()]()


@always_inline
def cast_to[
    dtype: DType, w: SIMDLength, //, to: DType
](x: SIMD[dtype, w]) -> SIMD[to, w]:
    """As C converts numbers, and integers out of range as torch does on x86 processors."""
    comptime if to == dtype:
        return rebind[SIMD[to, w]](x)
    elif to == DType.bool:
        # Mojo's `ne` is false of NaN.
        return rebind[SIMD[to, w]](~x.eq(0))
    elif dtype.is_floating_point() and to.is_integral() and size_of[Scalar[to]]() < 4:
        return x.cast[DType.int32]().cast[to]()
    else:
        return x.cast[to]()


@always_inline
def basic[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """A cheap function of one number."""
    comptime if kind == "negative":
        return -x
    elif kind == "abs":
        return abs(x)
    elif kind == "relu":
        return x.lt(0).select(SIMD[dtype, w](0), x)
    elif kind == "not":
        return ~x
    elif kind == "floor":
        return floor(x)
    elif kind == "ceil":
        return ceil(x)
    elif kind == "round":
        return x.__round__()
    elif kind == "trunc":
        return trunc(x)
    elif kind == "sqrt":
        return sqrt(x)
    else:
        comptime assert kind == "rsqrt", "no such operation"
        comptime if dtype == DType.float32:
            return rebind[SIMD[dtype, w]](single_rsqrt(rebind[Single[w]](x)))
        return 1 / sqrt(x)


@always_inline
def test[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, w]) -> SIMD[DType.bool, w]:
    """A property of one float."""
    comptime if kind == "is_nan":
        return isnan(x)
    elif kind == "is_inf":
        return abs(x).eq(SIMD[dtype, w](inf[dtype]()))
    else:
        comptime assert kind == "sign_bit", "no such operation"
        return is_negative(x)


@always_inline
def basic[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, w], y: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """A cheap function of two numbers. Extremes keep NaN."""
    comptime if kind == "add":
        return x + y
    elif kind == "sub":
        return x - y
    elif kind == "mul":
        return x * y
    elif kind == "div":
        return x / y
    elif kind == "max" or kind == "min":
        return both[kind](x, y)
    elif kind == "and":
        return x & y
    elif kind == "or":
        return x | y
    else:
        comptime assert kind == "xor", "no such operation"
        return x ^ y


@always_inline
def compare[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, w], y: SIMD[dtype, w]) -> SIMD[DType.bool, w]:
    comptime if kind == "equal":
        return x.eq(y)
    elif kind == "not_equal":
        return ~x.eq(y)
    elif kind == "greater":
        return x.gt(y)
    else:
        comptime assert kind == "greater_equal", "no such operation"
        return x.ge(y)


def vector[*dtypes: DType]() -> Int:
    """Elements of a vector that holds those of the largest of the dtypes."""
    var size = 1
    comptime for i in range(len(dtypes)):
        size = max(size, size_of[Scalar[wide[dtypes[i]]()]]())
    return min(UNIFORM, simd_width_of[DType.int8]() // size)


def _mask_type[memory: DType]() -> DType:
    """What is masked in place of numbers: vectors of halves are passed on as float32."""
    return DType.uint16 if memory == DType.float16 else memory


@no_inline
def _some[dtype: DType, w: Int](p: Address[dtype], n: Int) -> SIMD[dtype, w]:
    return masked_load[w](p, below[w](n), SIMD[dtype, w](0))


@no_inline
def _store_some[
    dtype: DType, w: Int
](p: Address[dtype], v: SIMD[dtype, w], n: Int):
    masked_store(v, p, below[w](n))


@always_inline
def load[dtype: DType, w: Int](p: Bytes, at: Int) -> SIMD[wide[dtype](), w]:
    """Elements of memory, to compute with."""
    comptime memory = stored[dtype]()
    var v = p.unsafe_bitcast[Scalar[memory]]().unsafe_load[width=w](at)
    return number_from[dtype](v)


@always_inline
def load[dtype: DType, w: Int](p: Bytes, at: Int, n: Int) -> SIMD[wide[dtype](), w]:
    """The same of fewer than `w` elements."""
    comptime memory = stored[dtype]()
    comptime masked = _mask_type[memory]()
    var v = _some[masked, w](p.unsafe_bitcast[Scalar[masked]]().unsafe_offset(at), n)
    comptime if masked == memory:
        return number_from[dtype](rebind[SIMD[memory, w]](v))
    else:
        return number_from[dtype](bitcast[memory, w](v))


@always_inline
def store[dtype: DType, w: Int](p: Bytes, at: Int, v: SIMD[wide[dtype](), w]):
    comptime memory = stored[dtype]()
    p.unsafe_bitcast[Scalar[memory]]().unsafe_store(at, kept[dtype](v))


@always_inline
def store[dtype: DType, w: Int](p: Bytes, at: Int, v: SIMD[wide[dtype](), w], n: Int):
    """The first `n` elements of a vector."""
    comptime memory = stored[dtype]()
    comptime masked = _mask_type[memory]()
    var sink = p.unsafe_bitcast[Scalar[masked]]().unsafe_offset(at)
    comptime if masked == memory:
        _store_some[masked, w](sink, rebind[SIMD[masked, w]](kept[dtype](v)), n)
    else:
        _store_some[masked, w](sink, bitcast[masked, w](kept[dtype](v)), n)


# What fused functions are made of besides.


@always_inline
def take[dtype: DType, w: Int](p: Bytes, at: Int, rest: Int) -> SIMD[wide[dtype](), w]:
    """A vector of a block, of which there is a rest."""
    if rest >= w:
        return load[dtype, w](p, at)
    return load[dtype, w](p, at, rest)


@always_inline
def put[dtype: DType, w: Int](p: Bytes, at: Int, v: SIMD[wide[dtype](), w], rest: Int):
    """Stores a vector of a block, or its rest. It was `rounded`, or read."""
    comptime if dtype == DType.bfloat16:
        # Rounded once more, each number would be tested for NaN once more.
        var bits = bitcast[DType.uint32, w](rebind[SIMD[DType.float32, w]](v)) >> 16
        comptime Bits = SIMD[wide[DType.uint16](), w]
        put[DType.uint16, w](p, at, rebind[Bits](bits.cast[DType.uint16]()), rest)
    else:
        if rest >= w:
            store[dtype, w](p, at, v)
        else:
            store[dtype, w](p, at, v, rest)


@always_inline
def constant[dtype: DType, w: Int](bits: Int) -> SIMD[wide[dtype](), w]:
    """The number of which these are the first bytes."""
    comptime memory = stored[dtype]()
    var first = bits
    var value = Pointer(to=first).unsafe_bitcast[Scalar[memory]]()[]
    return SIMD[wide[dtype](), w](number_from[dtype](value))


@always_inline
def rounded[
    computed: DType, w: SIMDLength, //, dtype: DType
](x: SIMD[computed, w]) -> SIMD[computed, w]:
    """What would be read again if it had been stored."""
    comptime if computed == DType.bool:
        return x
    elif computed == dtype and computed.is_floating_point():
        # A product that is not rounded together with the sum that it goes into.
        return llvm_intrinsic["llvm.arithmetic.fence", SIMD[computed, w], has_side_effect=False](x)
    elif computed == dtype:
        return x
    else:
        return rebind[SIMD[computed, w]](number_from[dtype](kept[dtype](x)))


trait Operation:
    """What a block function computes; those of fewer operands ignore the others."""

    comptime to: DType
    comptime a: DType
    comptime b: DType
    comptime c: DType
    comptime operands: Int
    # Whether the function is so long that its code is there once only.
    comptime long: Bool

    @staticmethod
    def of[
        w: Int
    ](
        x: SIMD[wide[Self.a](), w], y: SIMD[wide[Self.b](), w], z: SIMD[wide[Self.c](), w]
    ) -> SIMD[wide[Self.to](), w]:
        ...


@always_inline
def each[Of: Operation](to: Bytes, a: Bytes, b: Bytes, c: Bytes, n: Int64, steps: Int64):
    """The operation for each of `n` elements. Bits of `steps` say which operands advance; the
    others have `UNIFORM` equal elements. `to` may be an operand."""
    comptime A = Of.a
    comptime B = Of.b if Of.operands > 1 else Of.a
    comptime C = Of.c if Of.operands > 2 else Of.a
    comptime w = vector[Of.to, A, B, C]()
    comptime V[dtype: DType] = SIMD[wide[dtype](), w]
    comptime several = 1 if Of.long else min(4, UNIFORM // w)
    var count = Int(n)
    var step_a = Int(steps) & 1
    var step_b = (Int(steps) >> 1) & 1
    var step_c = (Int(steps) >> 2) & 1
    var j = 0
    comptime if several > 1:
        while j + several * w <= count:
            comptime for u in range(several):
                var x = load[Of.a, w](a, j * step_a + u * w)
                var y = V[Of.b](0)
                var z = V[Of.c](0)
                comptime if Of.operands > 1:
                    y = load[Of.b, w](b, j * step_b + u * w)
                comptime if Of.operands > 2:
                    z = load[Of.c, w](c, j * step_c + u * w)
                store[Of.to, w](to, j + u * w, Of.of[w](x, y, z))
            j += several * w
    while j < count:
        var rest = count - j
        var x: V[Of.a]
        var y = V[Of.b](0)
        var z = V[Of.c](0)
        if rest >= w:
            x = load[Of.a, w](a, j * step_a)
            comptime if Of.operands > 1:
                y = load[Of.b, w](b, j * step_b)
            comptime if Of.operands > 2:
                z = load[Of.c, w](c, j * step_c)
        else:
            x = load[Of.a, w](a, j * step_a, rest)
            comptime if Of.operands > 1:
                y = load[Of.b, w](b, j * step_b, rest)
            comptime if Of.operands > 2:
                z = load[Of.c, w](c, j * step_c, rest)
        var result = Of.of[w](x, y, z)
        if rest >= w:
            store[Of.to, w](to, j, result)
        else:
            store[Of.to, w](to, j, result, rest)
        j += w


struct Basic[kind: StaticString, result: DType, first: DType, second: DType, third: DType](Operation):
    """The cheap operations, "cast" and "select" among them."""

    comptime to = Self.result
    comptime a = Self.first
    comptime b = Self.second
    comptime c = Self.third
    comptime operands = operands[Self.kind]()
    comptime long = False

    @staticmethod
    @always_inline
    def of[
        w: Int
    ](
        x: SIMD[wide[Self.a](), w], y: SIMD[wide[Self.b](), w], z: SIMD[wide[Self.c](), w]
    ) -> SIMD[wide[Self.to](), w]:
        comptime Same = SIMD[wide[Self.a](), w]
        comptime Result = SIMD[wide[Self.to](), w]
        comptime if Self.kind == "cast":
            return cast_to[wide[Self.to]()](x)
        elif Self.kind == "select":
            var chosen = rebind[SIMD[DType.bool, w]](x).select(y, rebind[SIMD[wide[Self.b](), w]](z))
            return rebind[Result](chosen)
        elif Self.kind == "first" or Self.kind == "second":
            # One of two neighbouring elements.
            comptime half = 0 if Self.kind == "first" else 1
            comptime memory = stored[Self.to]()
            var both = bitcast[memory, 2 * w](x).deinterleave()
            return number_from[Self.to](rebind[SIMD[memory, w]](both[half]))
        elif Self.kind == "pair":
            var first = kept[Self.a](x)
            var second = kept[Self.a](rebind[Same](y))
            return rebind[Result](bitcast[Self.to, w](first.interleave(second)))
        elif Self.operands == 2 and Self.to == DType.bool and is_comparison[Self.kind]():
            return rebind[Result](compare[Self.kind](x, rebind[Same](y)))
        elif Self.operands == 2:
            return rebind[Result](basic[Self.kind](x, rebind[Same](y)))
        elif is_test[Self.kind]():
            return rebind[Result](test[Self.kind](x))
        else:
            return rebind[Result](basic[Self.kind](x))


def is_comparison[kind: StaticString]() -> Bool:
    return kind == "equal" or kind == "not_equal" or kind == "greater" or kind == "greater_equal"


def is_test[kind: StaticString]() -> Bool:
    return kind == "is_nan" or kind == "is_inf" or kind == "sign_bit"


def operands[kind: StaticString]() -> Int:
    """How many operands an operation of `Basic` has."""
    if kind == "select":
        return 3
    comptime if is_comparison[kind]():
        return 2
    for name in ["add", "sub", "mul", "div", "max", "min", "and", "or", "xor", "pair"]:
        if kind == name:
            return 2
    return 1
