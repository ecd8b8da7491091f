"""Operands of products in float32 for units that round them to TF32: NVIDIA's tensor cores."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.memory import bitcast
from std.utils.index import IndexList
from std.utils.numerics import isnan

from ..core.each import foreach

# The bits of a float32 that TF32 keeps, half of the last one of them, and the exponent.
comptime KEPT: UInt32 = 0xFFFFE000
comptime HALF: UInt32 = 0x1000
comptime EXPONENT: UInt32 = 0x7F800000


@always_inline
def _is_finite[w: SIMDLength, //](bits: SIMD[DType.uint32, w]) -> SIMD[DType.bool, w]:
    comptime U = SIMD[DType.uint32, w]
    return (bits & U(EXPONENT)).lt(U(EXPONENT))


@always_inline
def _rounded[w: SIMDLength, //](x: SIMD[DType.float32, w]) -> SIMD[DType.float32, w]:
    """The nearest number of TF32; the next one towards 0 where that is infinite."""
    comptime U = SIMD[DType.uint32, w]
    var bits = bitcast[DType.uint32, w](x)
    var nearest = (bits + U(HALF)) & U(KEPT)
    nearest = _is_finite(nearest).select(nearest, bits & U(KEPT))
    return isnan(x).select(x, bitcast[DType.float32, w](nearest))


@always_inline
def _part[
    w: SIMDLength, //
](x: SIMD[DType.float32, w], rest: Bool, main: Bool) -> SIMD[DType.float32, w]:
    """What rounding keeps of `x`, or what it loses. Beside the `main` product an operand that is
    not finite counts for nothing: it has no rest, and infinity times 0 is NaN."""
    comptime Z = SIMD[DType.float32, w](0)
    var kept = _rounded(x)
    if main:
        return kept
    var finite = _is_finite(bitcast[DType.uint32, w](kept))
    return finite.select(_rounded(x - kept) if rest else kept, Z)


@register("tmb_tf32_operand")
struct Tf32Operand:
    """An operand of a product as three, of which TF32 loses nothing or the last bits of float32:
    what it keeps, twice, and the rest; a right operand has the rest between them. The inner sizes
    side by side, `[M, 3 K] @ [3 K, N]`, they are the product but for rest times rest.

    The output has an axis for the parts: the first one, or the second with `inner`, where an
    operand's last axis is the inner one.
    """

    @staticmethod
    def execute[
        right: Bool, inner: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=DType.float32, rank=3, ...],
        x: InputTensor[dtype=DType.float32, rank=2, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def value[width: Int](at: Coord[...]) {var x} -> SIMD[DType.float32, width]:
            comptime axis = 1 if inner else 0
            var part = Int(at[axis])
            var place = IndexList[2](Int(at[1 - axis]), Int(at[2]))
            var rest = part == (1 if right else 2)
            return _part(x.load[width](Coord(place)), rest, part == 0)

        foreach[target=target](value, output, ctx)
