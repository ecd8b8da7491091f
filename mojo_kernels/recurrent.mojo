"""Recurrent layers: their steps in order, each step's product in stripes."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, exp, tanh

from .blas import Gemm, tasks_for
from .team import sync_parallelize


@always_inline
def _sigmoid[dtype: DType, //](x: Scalar[dtype]) -> Scalar[dtype]:
    comptime assert dtype.is_floating_point(), "float only"
    return 1 / (1 + exp(-x))


@register("tmb_lstm")
struct Lstm:
    """A layer of an LSTM in one direction. `inner[t]` is what step `t` adds to the
    gates (input, forget, cell, output; `[steps, batch, 4 * hidden]`); `weight` is
    `[4 * hidden, hidden]`. Returns the output of each step and the last states."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=3, ...],
        last_hidden: OutputTensor[dtype=dtype, rank=2, ...],
        last_cell: OutputTensor[dtype=dtype, rank=2, ...],
        inner: InputTensor[dtype=dtype, rank=3, ...],
        weight: InputTensor[dtype=dtype, rank=2, ...],
        hidden: InputTensor[dtype=dtype, rank=2, ...],
        cell: InputTensor[dtype=dtype, rank=2, ...],
        reverse: Int64,
        routine: Int64,
        set_threads: Int64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "on CPU only"
        comptime assert dtype.is_floating_point(), "float only"
        var gemm = Gemm(Int(routine), Int(set_threads))
        var steps = output.dim_size[0]()
        var batch = output.dim_size[1]()
        var size = output.dim_size[2]()
        var op = output.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var lp = last_hidden.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var cp = last_cell.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var ip = inner.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var wp = weight.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var hp = hidden.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var start = cell.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        for i in range(batch * size):
            cp[unsafe_offset=i] = start[unsafe_offset=i]
            lp[unsafe_offset=i] = hp[unsafe_offset=i]
        var gates = List[Scalar[dtype]](unsafe_uninit_length=max(4 * batch * size, 1))
        var gp = gates.unsafe_ptr().unsafe_origin_cast[MutAnyOrigin]()
        var tasks = tasks_for(ceildiv(size, 16), 4 * batch * size * size)
        var wide = ceildiv(ceildiv(size, tasks), 16) * 16
        tasks = ceildiv(size, wide)
        var backwards = reverse != 0

        for step in range(steps):
            var t = steps - 1 - step if backwards else step
            var now = ip.unsafe_offset(t * batch * 4 * size)
            var next = op.unsafe_offset(t * batch * size)

            def work(
                task: Int,
            ) {
                var gemm, var batch, var size, var wide, var now, var next, var lp, var cp, var wp, var gp,
            }:
                var first = task * wide
                var last = min(first + wide, size)
                var previous = gemm.begin()
                for gate in range(4):
                    var row = gate * size + first
                    for b in range(batch):
                        for j in range(last - first):
                            var at = b * 4 * size + row + j
                            gp[unsafe_offset=at] = now[unsafe_offset=at]
                    gemm.multiply(
                        batch,
                        last - first,
                        size,
                        lp,
                        size,
                        False,
                        wp.unsafe_offset(row * size),
                        size,
                        True,
                        gp.unsafe_offset(row),
                        4 * size,
                        True,
                    )
                gemm.end(previous)
                for b in range(batch):
                    var line = gp.unsafe_offset(b * 4 * size)
                    for j in range(first, last):
                        var at = b * size + j
                        var kept = _sigmoid(line[unsafe_offset = size + j])
                        var added = _sigmoid(line[unsafe_offset=j]) * tanh(
                            line[unsafe_offset = 2 * size + j]
                        )
                        var state = kept * cp[unsafe_offset=at] + added
                        cp[unsafe_offset=at] = state
                        next[unsafe_offset=at] = _sigmoid(
                            line[unsafe_offset = 3 * size + j]
                        ) * tanh(state)

            sync_parallelize(work, tasks)
            # All tasks read the state of the step before.
            for i in range(batch * size):
                lp[unsafe_offset=i] = next[unsafe_offset=i]
        _ = gates^
