"""Where a line has its greatest or least number."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of
from std.utils.numerics import isnan

from ..core.memory import Address, untracked
from ..core.team import in_ranges
from .reductions import along

comptime GRAIN = 32768
# Vectors beside each other, where the axis does not lie along the memory.
comptime BESIDE = 4


@always_inline
def _sought[
    dtype: DType, //, width: Int
](v: SIMD[dtype, width], value: Scalar[dtype]) -> SIMD[DType.bool, width]:
    """Which lanes hold a value; NaN is equal to itself."""
    comptime if dtype.is_floating_point():
        return v.eq(value) | (isnan(v) & SIMD[DType.bool, width](isnan(value)))
    else:
        return v.eq(value)


@always_inline
def _first[dtype: DType, //, kind: StaticString](x: Address[dtype], n: Int) -> Int:
    """The first position of the extreme of neighbouring numbers."""
    comptime width = simd_width_of[dtype]()

    @always_inline
    def load[w: Int](j: Int) {var x} -> SIMD[dtype, w]:
        return x.unsafe_load[width=w](j)

    var value = along[dtype, kind](load, 0, n)
    var j = 0
    while j + width <= n:
        if _sought[width](x.unsafe_load[width=width](j), value).reduce_or():
            break
        j += width
    while j < n:
        if _sought[1](x[unsafe_offset=j], value):
            return j
        j += 1
    return 0


@always_inline
def _across[
    dtype: DType, //, width: Int, kind: StaticString
](x: Address[dtype], n: Int, stride: Int, to: Address[DType.int64]):
    """The positions in `width` lines beside each other."""
    var best = x.unsafe_load[width=width](0)
    var at = SIMD[DType.int64, width](0)
    for i in range(1, n):
        var v = x.unsafe_load[width=width](i * stride)
        var better = v.gt(best) if kind == "max" else v.lt(best)
        comptime if dtype.is_floating_point():
            better = (better | isnan(v)) & ~isnan(best)
        best = better.select(v, best)
        at = better.select(SIMD[DType.int64, width](i), at)
    to.unsafe_store(0, at)


@register("tmb_position")
struct Position:
    """The first position of the greatest (`kind` "max") or least ("min") number along
    the middle axis of `[outer, n, inner]`; of the first NaN, where there is one."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int64, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernels"
        positions[kind](
            untracked(x.unsafe_ptr()),
            untracked(output.unsafe_ptr()),
            x.dim_size[0](),
            x.dim_size[1](),
            x.dim_size[2](),
        )


def positions[
    dtype: DType, //, kind: StaticString
](x: Address[dtype], to: Address[DType.int64], outer: Int, n: Int, inner: Int):
    """The positions for all lines."""
    comptime width = simd_width_of[dtype]()
    comptime wide = width * BESIDE
    if outer * n * inner == 0:
        return
    var blocks = ceildiv(inner, wide)
    var units = outer if inner == 1 else outer * blocks
    var each = max(1, GRAIN // (n * (1 if inner == 1 else min(inner, wide))))

    def work(lower: Int, upper: Int) {var x, var to, var n, var inner, var blocks}:
        for unit in range(lower, upper):
            if inner == 1:
                to[unsafe_offset=unit] = Int64(_first[kind](x.unsafe_offset(unit * n), n))
                continue
            var line = unit // blocks
            var first = unit % blocks * wide
            var source = x.unsafe_offset(line * n * inner + first)
            var sink = to.unsafe_offset(line * inner + first)
            if first + wide <= inner:
                _across[wide, kind](source, n, inner, sink)
                continue
            for j in range(inner - first):
                _across[1, kind](source.unsafe_offset(j), n, inner, sink.unsafe_offset(j))

    in_ranges(work, units, ceildiv(units, each))
