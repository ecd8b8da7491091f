"""Cumulative operations along one axis, seen as `[outer, n, inner]`."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.utils.numerics import isfinite, isnan

from ..mathematics.elementary import exp, log1p
from ..core.lines import each_line
from .cumsum import sum_type


@always_inline
def _log_add_exp[
    dtype: DType
](a: Scalar[dtype], b: Scalar[dtype]) -> Scalar[dtype]:
    comptime assert dtype.is_floating_point(), "float only"
    # `max` and `min` drop a NaN, torch keeps it.
    if isnan(a) or isnan(b):
        return a + b
    var high = max(a, b)
    var low = min(a, b)
    if high == low and not isfinite(low):
        return high
    return high + log1p(exp(low - high))


def running_type[dtype: DType, target: StaticString]() -> DType:
    """In what dtype products and sums run along an axis: on CPU as running sums do, and for 16
    bits in float32."""
    if dtype.is_half_float():
        return DType.float32
    return sum_type[dtype]() if target == "cpu" else dtype


@register("tmb_scan")
struct Scan:
    """Running products (`prod`) or logarithms of sums (`logsumexp`)."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, axis: Int, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert kind == "prod" or kind == "logsumexp", "unknown kind"
        comptime wide = running_type[dtype, target]()
        if x.size() == 0:
            return
        var n = x.dim_size[axis]()
        var inner = 1
        comptime for i in range(axis + 1, rank):
            inner *= x.dim_size[i]()
        var source = x.unsafe_ptr()
        var result = output.unsafe_ptr()

        @always_inline
        def work(line: Int) {var source, var result, var n, var inner}:
            var at = (line // inner) * n * inner + line % inner
            var running = source[unsafe_offset=at].cast[wide]()
            result[unsafe_offset=at] = source[unsafe_offset=at]
            for _ in range(1, n):
                at += inner
                var value = source[unsafe_offset=at].cast[wide]()
                comptime if kind == "prod":
                    running = running * value
                else:
                    running = _log_add_exp(running, value)
                result[unsafe_offset=at] = running.cast[dtype]()

        each_line[target=target](work, x.size() // n, n, ctx)


@register("tmb_running_extreme")
struct RunningExtreme:
    """Running maxima or minima and their last positions; NaN stays."""

    @staticmethod
    def execute[
        dtype: DType, rank: Int, //, axis: Int, least: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=rank, ...],
        indices: OutputTensor[dtype=DType.int64, rank=rank, ...],
        x: InputTensor[dtype=dtype, rank=rank, ...],
        ctx: DeviceContext,
    ) raises:
        if x.size() == 0:
            return
        var n = x.dim_size[axis]()
        var inner = 1
        comptime for i in range(axis + 1, rank):
            inner *= x.dim_size[i]()
        var source = x.unsafe_ptr()
        var result = values.unsafe_ptr()
        var positions = indices.unsafe_ptr()

        @always_inline
        def work(
            line: Int,
        ) {var source, var result, var positions, var n, var inner}:
            var at = (line // inner) * n * inner + line % inner
            var best = source[unsafe_offset=at]
            var where = 0
            for i in range(n):
                var value = source[unsafe_offset=at]
                var better: Bool
                comptime if least:
                    better = value <= best
                else:
                    better = value >= best
                comptime if dtype.is_floating_point():
                    # Of NaNs too the last one counts.
                    better = isnan(value) or better
                if better:
                    best = value
                    where = i
                result[unsafe_offset=at] = best
                positions[unsafe_offset=at] = Int64(where)
                at += inner

        each_line[target=target](work, x.size() // n, n, ctx)
