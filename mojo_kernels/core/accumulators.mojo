"""Sums, products and extremes of many numbers, as they go by in vectors.

`kind` is "sum", "prod", "max" or "min". Extremes are NaN where a number is.
"""

from std.utils.numerics import inf, isnan, nan


@always_inline
def start[kind: StaticString, dtype: DType]() -> Scalar[dtype]:
    """What a reduction begins with."""
    comptime if kind == "sum":
        return 0
    elif kind == "prod":
        return 1
    elif dtype.is_floating_point():
        return -inf[dtype]() if kind == "max" else inf[dtype]()
    else:
        return Scalar[dtype].MIN if kind == "max" else Scalar[dtype].MAX


@always_inline
def both[
    dtype: DType, w: SIMDLength, //, kind: StaticString
](a: SIMD[dtype, w], b: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """Two totals as one."""
    comptime if kind == "sum":
        return a + b
    elif kind == "prod":
        return a * b
    elif dtype.is_floating_point():
        comptime if kind == "max":
            return (a.gt(b) | isnan(a)).select(a, b)
        else:
            return (a.lt(b) | isnan(a)).select(a, b)
    else:
        comptime if kind == "max":
            return max(a, b)
        else:
            return min(a, b)


@always_inline
def rounding[
    dtype: DType, w: SIMDLength, //
](a: SIMD[dtype, w], b: SIMD[dtype, w]) -> SIMD[dtype, w]:
    """What the sum of two floats loses (Knuth's TwoSum); NaN if the sum is not finite."""
    var sum = a + b
    var part = sum - a
    return (a - (sum - part)) + (b - part)


struct Accumulator[dtype: DType, w: SIMDLength, kind: StaticString](
    ImplicitlyCopyable, RegisterPassable
):
    """The totals of the lanes of vectors.

    NaN is looked for apart from extremes: a comparison that takes no care of it is one
    instruction with the choice, and two vectors share the question whether either is NaN.

    Fields:
        total: Of each lane; of extremes, of what is not NaN.
        spoiled: Which lanes of extremes have seen NaN.
    """

    var total: SIMD[Self.dtype, Self.w]
    var spoiled: SIMD[DType.bool, Self.w]

    comptime extreme = (Self.kind == "max" or Self.kind == "min")
    comptime watches = Self.extreme and Self.dtype.is_floating_point()

    @always_inline
    def __init__(out self):
        """Of no vectors."""
        self.total = SIMD[Self.dtype, Self.w](start[Self.kind, Self.dtype]())
        self.spoiled = SIMD[DType.bool, Self.w](fill=False)

    @always_inline
    def add(mut self, v: SIMD[Self.dtype, Self.w]):
        """One more vector."""
        comptime if Self.watches:
            comptime if Self.kind == "max":
                self.total = v.gt(self.total).select(v, self.total)
            else:
                self.total = v.lt(self.total).select(v, self.total)
            self.spoiled = self.spoiled | isnan(v)
        else:
            self.total = both[Self.kind](self.total, v)

    @always_inline
    def join(mut self, other: Self):
        """The vectors of another."""
        comptime if Self.watches:
            self.add(other.total)
            self.spoiled = self.spoiled | other.spoiled
        else:
            self.total = both[Self.kind](self.total, other.total)

    @always_inline
    def lanes(self) -> SIMD[Self.dtype, Self.w]:
        """The total of each lane."""
        comptime if Self.watches:
            return self.spoiled.select(SIMD[Self.dtype, Self.w](nan[Self.dtype]()), self.total)
        else:
            return self.total

    @always_inline
    def value(self) -> Scalar[Self.dtype]:
        """The total of all lanes."""
        comptime if Self.watches:
            if self.spoiled.reduce_or():
                return nan[Self.dtype]()
        comptime if Self.kind == "sum":
            return self.total.reduce_add()
        elif Self.kind == "prod":
            return self.total.reduce_mul()
        elif Self.kind == "max":
            return self.total.reduce_max()
        else:
            return self.total.reduce_min()


@always_inline
def in_pairs[
    dtype: DType, w: SIMDLength, kind: StaticString, //
](four: Array[Accumulator[dtype, w, kind], 4]) -> Accumulator[dtype, w, kind]:
    """Four as one."""
    var first = four[0]
    first.join(four[1])
    var second = four[2]
    second.join(four[3])
    first.join(second)
    return first
