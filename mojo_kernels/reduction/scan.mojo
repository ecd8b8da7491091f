"""Cumulative operations along the middle dim of `[outer, n, inner]`."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.sys import simd_width_of
from std.utils.numerics import isnan

from ..core.lines import each_line
from ..core.memory import Address, untracked
from ..gemm.panels import transpose
from ..mathematics.elementary import log_add_exp
from .scanning import Scanning, columns_of, running_type, scan_lines, store_columns


@always_inline
def _next[
    dtype: DType, //, kind: StaticString, width: Int
](running: SIMD[dtype, width], value: SIMD[dtype, width]) -> SIMD[dtype, width]:
    comptime if kind == "prod":
        return running * value
    else:
        comptime assert kind == "logsumexp" and dtype.is_floating_point(), "unknown kind"
        return log_add_exp(running, value)


@fieldwise_init
struct _Totals[dtype: DType, wide: DType, kind: StaticString](Scanning):
    """Running products or sums, computed in another dtype."""

    var x: Address[Self.dtype]
    var to: Address[Self.dtype]

    @no_inline
    def beside[width: Int](self, first: Int, n: Int, inner: Int):
        var x = self.x.unsafe_offset(first)
        var to = self.to.unsafe_offset(first)
        var start = x.unsafe_load[width=width](0)
        var running = start.cast[Self.wide]()
        to.unsafe_store(0, start)
        for i in range(1, n):
            var value = x.unsafe_load[width=width](i * inner).cast[Self.wide]()
            running = _next[Self.kind, width](running, value)
            to.unsafe_store(i * inner, running.cast[Self.dtype]())

    @no_inline
    def behind[width: Int](self, first: Int, n: Int):
        var running = SIMD[Self.wide, width](0)
        for j in range(0, n, width):
            var columns = min(width, n - j)
            var block = columns_of[width](self.x.unsafe_offset(first + j), n, columns)
            for k in range(columns):
                if j + k == 0:
                    running = block[0].cast[Self.wide]()
                    continue
                running = _next[Self.kind, width](running, block[k].cast[Self.wide]())
                block[k] = running.cast[Self.dtype]()
            store_columns[width](block, self.to.unsafe_offset(first + j), n, columns)


@register("tmb_scan")
struct Scan:
    """Running products (`prod`) or logarithms of sums (`logsumexp`)."""

    @staticmethod
    def execute[
        dtype: DType, //, kind: StaticString, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert kind == "prod" or kind == "logsumexp", "unknown kind"
        comptime wide = running_type[dtype, target]()
        if x.size() == 0:
            return
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        comptime if target == "cpu":
            var lines = _Totals[dtype, wide, kind](
                untracked(x.unsafe_ptr()), untracked(output.unsafe_ptr())
            )
            scan_lines[simd_width_of[dtype]()](lines, x.size() // (n * inner), n, inner)
            return
        var source = x.unsafe_ptr()
        var result = output.unsafe_ptr()

        @always_inline
        def work(line: Int) {var source, var result, var n, var inner}:
            var at = (line // inner) * n * inner + line % inner
            var running = source[unsafe_offset=at].cast[wide]()
            result[unsafe_offset=at] = source[unsafe_offset=at]
            for _ in range(1, n):
                at += inner
                running = _next[kind, 1](running, source[unsafe_offset=at].cast[wide]())
                result[unsafe_offset=at] = running.cast[dtype]()

        each_line[target=target](work, x.size() // n, n, ctx)


@always_inline
def _replaces[
    dtype: DType, //, least: Bool, width: Int
](value: SIMD[dtype, width], best: SIMD[dtype, width]) -> SIMD[DType.bool, width]:
    """Whether a value takes the place of the best so far. Of NaNs too the last one counts."""
    var better: SIMD[DType.bool, width]
    comptime if least:
        better = value.le(best)
    else:
        better = value.ge(best)
    comptime if dtype.is_floating_point():
        better = better | isnan(value)
    return better


@fieldwise_init
struct _Extremes[dtype: DType, least: Bool](Scanning):
    """Running extremes and their positions, which fit 31 bits where lines lie behind each other."""

    var x: Address[Self.dtype]
    var to: Address[Self.dtype]
    var positions: Address[DType.int64]

    @no_inline
    def beside[width: Int](self, first: Int, n: Int, inner: Int):
        var x = self.x.unsafe_offset(first)
        var best = x.unsafe_load[width=width](0)
        var place = SIMD[DType.int64, width](0)
        for i in range(n):
            var value = x.unsafe_load[width=width](i * inner)
            var better = _replaces[Self.least, width](value, best)
            best = better.select(value, best)
            place = better.select(SIMD[DType.int64, width](Int64(i)), place)
            self.to.unsafe_store(first + i * inner, best)
            self.positions.unsafe_store(first + i * inner, place)

    @no_inline
    def behind[width: Int](self, first: Int, n: Int):
        comptime Places = SIMD[DType.int32, width]
        var best = SIMD[Self.dtype, width](0)
        var place = Places(0)
        var places = Array[Places, width](fill=Places(0))
        for j in range(0, n, width):
            var columns = min(width, n - j)
            var at = first + j
            var block = columns_of[width](self.x.unsafe_offset(at), n, columns)
            if j == 0:
                best = block[0]
            for k in range(columns):
                var better = _replaces[Self.least, width](block[k], best)
                best = better.select(block[k], best)
                place = better.select(Places(Int32(j + k)), place)
                block[k] = best
                places[k] = place
            store_columns[width](block, self.to.unsafe_offset(at), n, columns)
            if columns == width:
                transpose(places)
            for k in range(width):
                var to = self.positions.unsafe_offset(at + k * n)
                if columns == width:
                    to.unsafe_store(0, places[k].cast[DType.int64]())
                    continue
                for c in range(columns):
                    to[unsafe_offset=c] = Int64(places[c][k])


@register("tmb_running_extreme")
struct RunningExtreme:
    """Running maxima or minima and their last positions; NaN stays."""

    @staticmethod
    def execute[
        dtype: DType, //, least: Bool, target: StaticString
    ](
        values: OutputTensor[dtype=dtype, rank=3, ...],
        indices: OutputTensor[dtype=DType.int64, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        if x.size() == 0:
            return
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        comptime if target == "cpu":
            var lines = _Extremes[dtype, least](
                untracked(x.unsafe_ptr()),
                untracked(values.unsafe_ptr()),
                untracked(indices.unsafe_ptr()),
            )
            # Positions of a column in registers of 32 bits.
            comptime width = min(16, simd_width_of[dtype]())
            if n <= Int(Int32.MAX):
                scan_lines[width](lines, x.size() // (n * inner), n, inner)
            else:
                scan_lines[1](lines, x.size() // (n * inner), n, inner)
            return
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
                var better = _replaces[least, 1](value, best)
                if better:
                    best = value
                    where = i
                result[unsafe_offset=at] = best
                positions[unsafe_offset=at] = Int64(where)
                at += inner

        each_line[target=target](work, x.size() // n, n, ctx)
