"""Running sums along one axis."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_ranges
from .scanning import sum_type

# Elements of a task.
comptime GRAIN = 32768
# Lines that are added up in turns: each waits for its last sum.
comptime TURNS = 4


@always_inline
def _along[
    dtype: DType, //, lines: Int
](x: Address[dtype], to: Address[dtype], n: Int):
    """`lines` lines of `n` neighbouring numbers."""
    comptime wide = sum_type[dtype]()
    var sums = Array[Scalar[wide], lines](fill=0)
    for j in range(n):
        comptime for k in range(lines):
            sums[k] += x[unsafe_offset = k * n + j].cast[wide]()
            to[unsafe_offset = k * n + j] = sums[k].cast[dtype]()


@always_inline
def _across[
    dtype: DType, //, width: Int
](x: Address[dtype], to: Address[dtype], n: Int, stride: Int):
    """`width` lines beside each other, their numbers `stride` apart."""
    comptime wide = sum_type[dtype]()
    var sums = SIMD[wide, width](0)
    for i in range(n):
        sums += x.unsafe_load[width=width](i * stride).cast[wide]()
        to.unsafe_store(i * stride, sums.cast[dtype]())


@register("tmb_cumsum")
struct CumulativeSum:
    """The running sums along the middle axis of `[outer, n, inner]`; of integers they wrap."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        x: InputTensor[dtype=dtype, rank=3, ...],
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernel"
        comptime width = 4 * simd_width_of[dtype]()
        var outer = x.dim_size[0]()
        var n = x.dim_size[1]()
        var inner = x.dim_size[2]()
        if outer * n * inner == 0:
            return
        var xp = untracked(x.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var blocks = ceildiv(inner, width)
        var units = ceildiv(outer, TURNS) if inner == 1 else outer * blocks
        var each = max(1, GRAIN // (n * (TURNS if inner == 1 else min(inner, width))))

        def work(lower: Int, upper: Int) {var xp, var op, var outer, var n, var inner, var blocks}:
            for unit in range(lower, upper):
                if inner == 1:
                    var line = unit * TURNS
                    if line + TURNS <= outer:
                        _along[TURNS](xp.unsafe_offset(line * n), op.unsafe_offset(line * n), n)
                        continue
                    for k in range(line, outer):
                        _along[1](xp.unsafe_offset(k * n), op.unsafe_offset(k * n), n)
                    continue
                var first = unit % blocks * width
                var at = unit // blocks * n * inner + first
                if first + width <= inner:
                    _across[width](xp.unsafe_offset(at), op.unsafe_offset(at), n, inner)
                    continue
                for j in range(inner - first):
                    _across[1](xp.unsafe_offset(at + j), op.unsafe_offset(at + j), n, inner)

        in_ranges(work, units, ceildiv(units, each))
