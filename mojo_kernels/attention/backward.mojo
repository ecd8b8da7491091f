"""Gradients of scaled dot product attention, a tile of queries and keys of one
head at a time, the probabilities computed again from the logarithms of their
sums; products by the routine of `gemm/blas.mojo`."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, sqrt
from std.sys import simd_width_of

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, in_ranges
from ..gemm.blas import Gemm, tasks_for
from ..mathematics.elementary import exp
from .forward import heads_of

# Queries and keys of a tile: two tiles of scores fit a second-level cache.
comptime QUERIES = 128
comptime KEYS = 256


@always_inline
def _gradients_row[
    dtype: DType
](
    scores: Address[dtype],
    slopes: Address[dtype],
    length: Int,
    scale: Scalar[dtype],
    log_sum: Scalar[dtype],
    center: Scalar[dtype],
    mask: Address[dtype],
    mask_step: Int,
    masked: Bool,
):
    """Replaces products of a query and keys by probabilities, and the gradients
    of these by the gradients of the products. Writes up to a vector past the end."""
    comptime width = simd_width_of[dtype]()
    var factor = scale
    if masked:
        factor = 1
        var j = 0
        if mask_step == 1:
            while j + width <= length:
                var v = scores.unsafe_load[width=width](j) * scale
                scores.unsafe_store[width=width](
                    j, v + mask.unsafe_load[width=width](j)
                )
                j += width
        while j < length:
            scores[unsafe_offset=j] = (
                scores[unsafe_offset=j] * scale + mask[unsafe_offset = j * mask_step]
            )
            j += 1
    for j in range(0, length, width):
        var p = exp(scores.unsafe_load[width=width](j) * factor - log_sum)
        var slope = slopes.unsafe_load[width=width](j)
        scores.unsafe_store[width=width](j, p)
        slopes.unsafe_store[width=width](j, p * (slope - center) * scale)


@always_inline
def _dot[dtype: DType](a: Address[dtype], b: Address[dtype], length: Int) -> Scalar[dtype]:
    comptime width = simd_width_of[dtype]()
    var sums = SIMD[dtype, width](0)
    var j = 0
    while j + width <= length:
        sums = a.unsafe_load[width=width](j).fma(b.unsafe_load[width=width](j), sums)
        j += width
    var total = sums.reduce_add()
    while j < length:
        total += a[unsafe_offset=j] * b[unsafe_offset=j]
        j += 1
    return total


@always_inline
def _fill_rows[dtype: DType](to: Address[dtype], rows: Int, row: Int, width: Int):
    for i in range(rows):
        for j in range(width):
            to[unsafe_offset = i * row + j] = 0


@always_inline
def _parts_for(owners: Int, blocks: Int, tasks: Int) -> Int:
    """Into how many parts to cut the queries of each of `owners` key heads, so that all
    tasks are busy most of the time."""
    var parts = 1
    while parts < min(blocks, tasks):
        var units = owners * parts
        if ceildiv(units, tasks) * tasks <= units + units // 8:
            break
        parts += 1
    return parts


@register("tmb_attention_backward")
struct AttentionBackward:
    """Gradients of query, key and value of `tmb_attention`, each as
    `[batch, rows, heads, width]`.

    What it is given, save for the sums, may have strides as in `tmb_attention`."""

    @staticmethod
    def execute[
        dtype: DType, //, target: StaticString
    ](
        of_query: OutputTensor[dtype=dtype, rank=4, ...],
        of_key: OutputTensor[dtype=dtype, rank=4, ...],
        of_value: OutputTensor[dtype=dtype, rank=4, ...],
        grad: InputTensor[dtype=dtype, rank=4, ...],
        q: InputTensor[dtype=dtype, rank=4, ...],
        k: InputTensor[dtype=dtype, rank=4, ...],
        v: InputTensor[dtype=dtype, rank=4, ...],
        output: InputTensor[dtype=dtype, rank=4, ...],
        log_sums: InputTensor[dtype=dtype, rank=3, ...],
        mask: InputTensor[dtype=dtype, rank=4, ...],
        routine: Int64,
        set_threads: Int64,
        swapped_grad: Int64,
        swapped_q: Int64,
        swapped_k: Int64,
        swapped_v: Int64,
        swapped_output: Int64,
        masked: Int64,
        causal: Int64,
        scaled: Int64,
        scale: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernels"
        comptime assert dtype.is_floating_point(), "float only"
        comptime width = simd_width_of[dtype]()
        var gemm = Gemm(Int(routine), Int(set_threads))
        var batch = q.dim_size[0]()
        var gs = heads_of(grad.shape(), grad.strides(), swapped_grad)
        var qs = heads_of(q.shape(), q.strides(), swapped_q)
        var ks = heads_of(k.shape(), k.strides(), swapped_k)
        var vs = heads_of(v.shape(), v.strides(), swapped_v)
        var os = heads_of(output.shape(), output.strides(), swapped_output)
        var to_q = heads_of(of_query.shape(), of_query.strides(), 1)
        var to_k = heads_of(of_key.shape(), of_key.strides(), 1)
        var to_v = heads_of(of_value.shape(), of_value.strides(), 1)
        var gp = untracked(grad.unsafe_ptr())
        var qp = untracked(q.unsafe_ptr())
        var kp = untracked(k.unsafe_ptr())
        var vp = untracked(v.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var lp = untracked(log_sums.unsafe_ptr())
        var mp = untracked(mask.unsafe_ptr())
        var dqp = untracked(of_query.unsafe_ptr())
        var dkp = untracked(of_key.unsafe_ptr())
        var dvp = untracked(of_value.unsafe_ptr())
        if batch * qs.heads * qs.rows * ks.rows * qs.width * vs.width == 0:
            _fill_rows(dqp, 1, 0, batch * qs.heads * qs.rows * qs.width)
            _fill_rows(dkp, 1, 0, batch * ks.heads * ks.rows * ks.width)
            _fill_rows(dvp, 1, 0, batch * vs.heads * vs.rows * vs.width)
            return
        var has_mask = masked != 0
        var is_causal = causal != 0
        var factor = scale.cast[dtype]()
        if scaled == 0:
            factor = 1 / sqrt(Scalar[dtype](qs.width))
        # A dimension of 1 serves all.
        var mask_column = 0 if mask.dim_size[3]() == 1 else mask.stride_length[3]()
        var mask_row = 0 if mask.dim_size[2]() == 1 else mask.stride_length[2]()
        var mask_head = 0 if mask.dim_size[1]() == 1 else mask.stride_length[1]()
        var mask_item = 0 if mask.dim_size[0]() == 1 else mask.stride_length[0]()

        var high = min(QUERIES, qs.rows)
        var wide = min(KEYS, ks.rows)
        # Whole vectors a row.
        var line = ceildiv(wide, width) * width
        var shared = qs.heads // ks.heads
        var blocks = shared * ceildiv(qs.rows, high)
        var owners = batch * ks.heads
        var cost = batch * qs.heads * qs.rows * ks.rows * (3 * qs.width + 2 * vs.width + 16)
        var tasks = tasks_for(owners * blocks, cost)
        var parts = _parts_for(owners, blocks, tasks)
        var units = owners * parts
        tasks = min(tasks, units)
        # Two tiles and a column a task.
        var space = 2 * high * line + high
        # All parts but the first add to gradients of keys and values of their own.
        var partial = ks.rows * (qs.width + vs.width)
        var scratch = List[Scalar[dtype]](
            unsafe_uninit_length=tasks * space + owners * (parts - 1) * partial
        )
        var sp = untracked(scratch.unsafe_ptr())
        var pp = sp.unsafe_offset(tasks * space)

        def work(task: Int, lower: Int, upper: Int) {
            var gemm, var gs, var qs, var ks, var vs, var os, var to_q, var to_k, var to_v,
            var gp, var qp, var kp, var vp, var op, var lp, var mp, var dqp, var dkp, var dvp,
            var sp, var pp, var has_mask, var is_causal, var factor, var mask_column,
            var mask_row, var mask_head, var mask_item, var high, var wide, var line, var shared,
            var blocks, var parts, var space, var partial
        }:
            var scores = sp.unsafe_offset(task * space)
            var slopes = scores.unsafe_offset(high * line)
            var centers = slopes.unsafe_offset(high * line)
            var previous = gemm.begin()
            for unit in range(lower, upper):
                var owner = unit // parts
                var part = unit % parts
                var item = owner // ks.heads
                var key_head = owner % ks.heads
                var keys = kp.unsafe_offset(ks.at(item, key_head, 0))
                var values = vp.unsafe_offset(vs.at(item, key_head, 0))
                var of_keys = dkp.unsafe_offset(to_k.at(item, key_head, 0))
                var of_values = dvp.unsafe_offset(to_v.at(item, key_head, 0))
                var row_k = to_k.row
                var row_v = to_v.row
                if part > 0:
                    of_keys = pp.unsafe_offset((owner * (parts - 1) + part - 1) * partial)
                    of_values = of_keys.unsafe_offset(ks.rows * ks.width)
                    row_k = ks.width
                    row_v = vs.width
                _fill_rows(of_keys, ks.rows, row_k, ks.width)
                _fill_rows(of_values, ks.rows, row_v, vs.width)
                # Not a run of blocks: causal ones cost the more the later they are.
                for block in range(part, blocks, parts):
                    var head = key_head * shared + block % shared
                    var first = block // shared * high
                    var rows = min(high, qs.rows - first)
                    var queries = qp.unsafe_offset(qs.at(item, head, first))
                    var grads = gp.unsafe_offset(gs.at(item, head, first))
                    var outputs = op.unsafe_offset(os.at(item, head, first))
                    var of_queries = dqp.unsafe_offset(to_q.at(item, head, first))
                    var sums = lp.unsafe_offset((item * qs.heads + head) * qs.rows + first)
                    var plane = mp.unsafe_offset(item * mask_item + head * mask_head)
                    for i in range(rows):
                        centers[unsafe_offset=i] = _dot(
                            grads.unsafe_offset(i * gs.row),
                            outputs.unsafe_offset(i * os.row),
                            vs.width,
                        )
                    var until = ks.rows
                    if is_causal:
                        until = min(until, first + rows)
                    for start in range(0, until, wide):
                        var columns = min(wide, until - start)
                        var key = keys.unsafe_offset(start * ks.row)
                        gemm.multiply(
                            rows,
                            columns,
                            qs.width,
                            queries,
                            qs.row,
                            False,
                            key,
                            ks.row,
                            True,
                            scores,
                            line,
                        )
                        gemm.multiply(
                            rows,
                            columns,
                            vs.width,
                            grads,
                            gs.row,
                            False,
                            values.unsafe_offset(start * vs.row),
                            vs.row,
                            True,
                            slopes,
                            line,
                        )
                        for i in range(rows):
                            var length = columns
                            if is_causal:
                                length = max(0, min(length, first + i + 1 - start))
                            _gradients_row(
                                scores.unsafe_offset(i * line),
                                slopes.unsafe_offset(i * line),
                                length,
                                factor,
                                sums[unsafe_offset=i],
                                centers[unsafe_offset=i],
                                plane.unsafe_offset(
                                    (first + i) * mask_row + start * mask_column
                                ),
                                mask_column,
                                has_mask,
                            )
                            for j in range(i * line + length, i * line + columns):
                                scores[unsafe_offset=j] = 0
                                slopes[unsafe_offset=j] = 0
                        gemm.multiply(
                            columns,
                            vs.width,
                            rows,
                            scores,
                            line,
                            True,
                            grads,
                            gs.row,
                            False,
                            of_values.unsafe_offset(start * row_v),
                            row_v,
                            True,
                        )
                        gemm.multiply(
                            rows,
                            qs.width,
                            columns,
                            slopes,
                            line,
                            False,
                            key,
                            ks.row,
                            False,
                            of_queries,
                            to_q.row,
                            start != 0,
                        )
                        gemm.multiply(
                            columns,
                            qs.width,
                            rows,
                            slopes,
                            line,
                            True,
                            queries,
                            qs.row,
                            False,
                            of_keys.unsafe_offset(start * row_k),
                            row_k,
                            True,
                        )
            gemm.end(previous)

        in_numbered_ranges(work, units, tasks)

        if parts > 1:
            var lines = owners * ks.rows
            var together = tasks_for(lines, lines * parts * (qs.width + vs.width))

            def add(lower: Int, upper: Int) {
                var ks, var vs, var to_k, var to_v, var dkp, var dvp, var pp, var parts,
                var partial
            }:
                for at in range(lower, upper):
                    var owner = at // ks.rows
                    var row = at % ks.rows
                    var item = owner // ks.heads
                    var head = owner % ks.heads
                    for part in range(parts - 1):
                        var source = pp.unsafe_offset((owner * (parts - 1) + part) * partial)
                        _add(
                            dkp.unsafe_offset(to_k.at(item, head, row)),
                            source.unsafe_offset(row * ks.width),
                            ks.width,
                        )
                        _add(
                            dvp.unsafe_offset(to_v.at(item, head, row)),
                            source.unsafe_offset(ks.rows * ks.width + row * vs.width),
                            vs.width,
                        )

            in_ranges(add, lines, together)
        _ = scratch^


@always_inline
def _add[dtype: DType](to: Address[dtype], source: Address[dtype], length: Int):
    comptime width = simd_width_of[dtype]()
    var j = 0
    while j + width <= length:
        to.unsafe_store[width=width](
            j, to.unsafe_load[width=width](j) + source.unsafe_load[width=width](j)
        )
        j += width
    while j < length:
        to[unsafe_offset=j] += source[unsafe_offset=j]
        j += 1
