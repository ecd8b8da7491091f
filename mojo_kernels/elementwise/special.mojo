"""Special functions, elementwise. All is computed in float64, float32 rounded at the end."""

from extensibility import InputTensor, OutputTensor, register
from layout import Coord
from max.gpu.host import DeviceContext

from ..mathematics.bessel import bessel_j0, bessel_j1, bessel_y0, bessel_y1, spherical_bessel_j0
from ..core.each import foreach
from ..mathematics.scaled_error_function import erfcx64, erfinv64, log_ndtr64, ndtri64
from ..mathematics.gamma import digamma64, factorial64, lgamma64, polygamma64, zeta64
from ..mathematics.modified_bessel import (
    airy_ai,
    bessel_i0,
    bessel_i1,
    bessel_k0,
    bessel_k1,
    scaled_i0,
    scaled_i1,
)
from ..mathematics.polynomials import orthogonal
from ..mathematics.regularized_gamma import power_over_gamma, regularized_gamma


@always_inline
def _function[
    w: SIMDLength, //, kind: StaticString
](x: SIMD[DType.float64, w]) -> SIMD[DType.float64, w]:
    comptime if kind == "lgamma":
        return lgamma64(x)
    elif kind == "digamma":
        return digamma64(x)
    elif kind == "erfcx":
        return erfcx64(x)
    elif kind == "erfinv":
        return erfinv64(x)
    elif kind == "ndtri":
        return ndtri64(x)
    elif kind == "log_ndtr":
        return log_ndtr64(x)
    elif kind == "bessel_j0":
        return bessel_j0(x)
    elif kind == "bessel_j1":
        return bessel_j1(x)
    elif kind == "bessel_y0":
        return bessel_y0(x)
    elif kind == "bessel_y1":
        return bessel_y1(x)
    elif kind == "spherical_bessel_j0":
        return spherical_bessel_j0(x)
    elif kind == "i0":
        return bessel_i0(x)
    elif kind == "i1":
        return bessel_i1(x)
    elif kind == "i0e":
        return scaled_i0(x)
    elif kind == "i1e":
        return scaled_i1(x)
    elif kind == "k0":
        return bessel_k0[scaled=False](x)
    elif kind == "k1":
        return bessel_k1[scaled=False](x)
    elif kind == "scaled_k0":
        return bessel_k0[scaled=True](x)
    elif kind == "scaled_k1":
        return bessel_k1[scaled=True](x)
    else:
        comptime assert kind == "airy_ai", "no such function"
        return airy_ai(x)


@register("tmb_special")
struct Special:
    """A function of one tensor."""

    @staticmethod
    def execute[
        kind: StaticString, target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[width: Int](at: Coord[...]) {var x} -> SIMD[output.dtype, width]:
            var v = x.load[width](at).cast[DType.float64]()
            return _function[kind](v).cast[output.dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_polygamma")
struct Polygamma:
    """The derivative of order `n` of digamma."""

    @staticmethod
    def execute[
        target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        n: Int64,
        ctx: DeviceContext,
    ) raises:
        var order = Int(n)
        var factorial = factorial64(order)

        @always_inline
        def body[
            width: Int
        ](at: Coord[...]) {var x, var order, var factorial} -> SIMD[output.dtype, width]:
            var v = x.load[width](at).cast[DType.float64]()
            return polygamma64(order, factorial, v).cast[output.dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_special_pair")
struct SpecialPair:
    """A function of two tensors: "zeta" (of s and q), or the regularized gamma functions
    "lower_gamma" and "upper_gamma" (of a and x)."""

    @staticmethod
    def execute[
        kind: StaticString, target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        y: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[
            width: Int
        ](at: Coord[...]) {var x, var y} -> SIMD[output.dtype, width]:
            var a = x.load[width](at).cast[DType.float64]()
            var b = y.load[width](at).cast[DType.float64]()
            comptime if kind == "zeta":
                return zeta64(a, b).cast[output.dtype]()
            else:
                comptime assert kind == "lower_gamma" or kind == "upper_gamma", "unknown"
                comptime epsilon = 1.1e-16 if output.dtype == DType.float64 else 1e-11
                var factor = power_over_gamma(a, b)
                var result = SIMD[DType.float64, width](0)
                for i in range(width):
                    result[i] = regularized_gamma(
                        a[i], b[i], factor[i], kind == "upper_gamma", epsilon
                    )
                return result.cast[output.dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_orthogonal_polynomial")
struct Orthogonal:
    """The orthogonal polynomial of the degrees `n`, of `2x - 1` if `shifted`."""

    @staticmethod
    def execute[
        kind: StaticString, shifted: Bool, target: StaticString
    ](
        output: OutputTensor,
        x: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        n: InputTensor[dtype=output.dtype, rank=output.rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime most = 512 if output.dtype == DType.float64 else 128

        @always_inline
        def body[
            width: Int
        ](at: Coord[...]) {var x, var n} -> SIMD[output.dtype, width]:
            var v = x.load[width](at).cast[DType.float64]()
            var degree = n.load[width](at).cast[DType.float64]()
            comptime if shifted:
                v = 2 * v - 1
            return orthogonal[kind, most](v, degree).cast[output.dtype]()

        foreach[target=target](body, output, ctx)
