"""Elementwise functions that MAX lacks, or has slow or inexact. What computes
their arguments becomes a part of these kernels.

16-bit floats are widened inside."""

from extensibility import OutputTensor, register
from extensibility import _FusedInputTensor as FusedInputTensor
from layout import Coord
from max.gpu.host import DeviceContext

from ..mathematics.doubled import is_negative
from ..core.each import foreach
from ..mathematics.elementary import (
    exp,
    exp2,
    expm1,
    hypot,
    log,
    log10,
    log1p,
    log2,
    log_add_exp,
    log_add_exp2,
    pow,
)
from ..mathematics.error_function import erf, erfc
from ..mathematics.float8 import float8, from_float8, to_float8
from ..mathematics.float_parts import copysign, exponent, mantissa
from ..core.fused import load
from ..mathematics.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from ..mathematics.inverse_trigonometry import acos, asin, atan, atan2
from ..mathematics.trigonometry import cos, sin, sinc, tan


@always_inline
def function_of_one[
    dtype: DType, width: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if kind == "exp":
        return exp(x)
    elif kind == "exp2":
        return exp2(x)
    elif kind == "expm1":
        return expm1(x)
    elif kind == "log":
        return log(x)
    elif kind == "log1p":
        return log1p(x)
    elif kind == "log2":
        return log2(x)
    elif kind == "log10":
        return log10(x)
    elif kind == "sin":
        return sin(x)
    elif kind == "cos":
        return cos(x)
    elif kind == "tan":
        return tan(x)
    elif kind == "sinc":
        return sinc(x)
    elif kind == "asin":
        return asin(x)
    elif kind == "acos":
        return acos(x)
    elif kind == "atan":
        return atan(x)
    elif kind == "sinh":
        return sinh(x)
    elif kind == "cosh":
        return cosh(x)
    elif kind == "tanh":
        return tanh(x)
    elif kind == "asinh":
        return asinh(x)
    elif kind == "acosh":
        return acosh(x)
    elif kind == "atanh":
        return atanh(x)
    elif kind == "mantissa":
        return mantissa(x)
    elif kind == "erf":
        return erf(x)
    else:
        comptime assert kind == "erfc", "unknown function"
        return erfc(x)


@always_inline
def function_of_two[
    dtype: DType, width: SIMDLength, //, kind: StaticString
](x: SIMD[dtype, width], y: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if kind == "pow":
        return pow(x, y)
    elif kind == "atan2":
        return atan2(x, y)
    elif kind == "hypot":
        return hypot(x, y)
    elif kind == "copysign":
        return copysign(x, y)
    elif kind == "logaddexp":
        return log_add_exp(x, y)
    else:
        comptime assert kind == "logaddexp2", "unknown function"
        return log_add_exp2(x, y)


def working[dtype: DType]() -> DType:
    """The dtype to compute in."""
    return dtype if dtype == DType.float64 else DType.float32


@register("tmb_unary")
struct Unary:
    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: FusedInputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[width: Int](at: Coord[...]) {var x} -> SIMD[dtype, width]:
            var v = load[width](x, at).cast[working[dtype]()]()
            return function_of_one[kind](v).cast[dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_binary")
struct Binary:
    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: FusedInputTensor[dtype=dtype, rank=rank, ...],
        y: FusedInputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[width: Int](at: Coord[...]) {var x, var y} -> SIMD[dtype, width]:
            var v = load[width](x, at).cast[working[dtype]()]()
            var w = load[width](y, at).cast[working[dtype]()]()
            return function_of_two[kind](v, w).cast[dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_binary_scalar")
struct BinaryScalar:
    """One operand is one number: the first if `first`, else the second."""

    @staticmethod
    def execute[
        dtype: DType,
        rank: Int,
        //,
        kind: StaticString,
        first: Bool,
        target: StaticString,
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: FusedInputTensor[dtype=dtype, rank=rank, ...],
        scalar: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime wide = working[dtype]()
        var number = scalar.cast[wide]()

        @always_inline
        def body[width: Int](at: Coord[...]) {var x, var number} -> SIMD[dtype, width]:
            var v = load[width](x, at).cast[wide]()
            var other = SIMD[wide, width](number)
            comptime if first:
                return function_of_two[kind](other, v).cast[dtype]()
            else:
                return function_of_two[kind](v, other).cast[dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_exponent")
struct Exponent:
    """The second output of `frexp`; the first is `mantissa`."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.int32, rank=rank, ...],
        x: FusedInputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[width: Int](at: Coord[...]) {var x} -> SIMD[DType.int32, width]:
            return exponent(load[width](x, at).cast[working[dtype]()]())

        foreach[target=target](body, output, ctx)


@register("tmb_sign_bit")
struct SignBit:
    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, target: StaticString
    ](
        output: OutputTensor[dtype=DType.bool, rank=rank, ...],
        x: FusedInputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        @always_inline
        def body[width: Int](at: Coord[...]) {var x} -> SIMD[DType.bool, width]:
            return is_negative(load[width](x, at).cast[working[dtype]()]())

        foreach[target=target](body, output, ctx)


@register("tmb_from_float8")
struct FromFloat8:
    """The numbers of float8 that bytes stand for."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: FusedInputTensor[dtype=DType.uint8, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "float8 tensors of GPUs are not converted"

        @always_inline
        def body[width: Int](at: Coord[...]) {var x} -> SIMD[dtype, width]:
            return from_float8[float8[kind]()](load[width](x, at)).cast[dtype]()

        foreach[target=target](body, output, ctx)


@register("tmb_to_float8")
struct ToFloat8:
    """The bytes that stand for numbers in float8."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, kind: StaticString, saturating: Bool, target: StaticString
    ](
        output: OutputTensor[dtype=DType.uint8, rank=rank, ...],
        x: FusedInputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "float8 tensors of GPUs are not converted"

        @always_inline
        def body[width: Int](at: Coord[...]) {var x} -> SIMD[DType.uint8, width]:
            return to_float8[float8[kind](), saturating](load[width](x, at).cast[DType.float32]())

        foreach[target=target](body, output, ctx)
