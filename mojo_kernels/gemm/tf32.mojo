"""Operands of products in float32 for units that round them to TF32: NVIDIA's tensor cores."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext
from std.memory import bitcast
from std.utils.index import IndexList
from std.utils.numerics import isfinite, isnan

from ..core.each import foreach

# The bits of a float32 that TF32 keeps, and half of the last one of them.
comptime KEPT: UInt32 = 0xFFFFE000
comptime HALF: UInt32 = 0x1000


@always_inline
def _rounded[w: SIMDLength, //](x: SIMD[DType.float32, w]) -> SIMD[DType.float32, w]:
    """The nearest number of TF32; the next one towards 0 where that is infinite."""
    comptime U = SIMD[DType.uint32, w]
    var bits = bitcast[DType.uint32, w](x)
    var nearest = bitcast[DType.float32, w]((bits + U(HALF)) & U(KEPT))
    var inner = bitcast[DType.float32, w](bits & U(KEPT))
    return isnan(x).select(x, isfinite(nearest).select(nearest, inner))


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
    return isfinite(kept).select(_rounded(x - kept) if rest else kept, Z)


@register("tmb_tf32_operand")
struct Tf32Operand:
    """Three parts of an operand, which TF32 holds: what rounding to TF32 keeps of it, the same
    again, and the rest. A right operand has the rest in the middle. So the product of the parts,
    `[M, 3 K] @ [3 K, N]`, is that of the operands but for rest times rest.

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
            var part = Int(at[axis].value())
            var place = IndexList[2](Int(at[1 - axis].value()), Int(at[2].value()))
            var rest = part == (1 if right else 2)
            return _part(x.load[width](Coord(place)), rest, part == 0)

        foreach[target=target](value, output, ctx)
