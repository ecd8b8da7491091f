"""Scaled dot product attention, a block of queries of one head at a time, its
products by the routine of `gemm/blas.mojo`."""

from extensibility import InputTensor, OutputTensor, register
from max.gpu.host import DeviceContext
from std.math import ceildiv, sqrt
from std.sys import simd_width_of, size_of
from std.utils.index import IndexList
from std.utils.numerics import isnan, min_or_neg_inf

from ..core.memory import Address, untracked
from ..core.team import in_numbered_ranges, parallelism_level
from ..gemm.bfloat16 import Half
from ..gemm.blas import GRAIN, Gemm, tasks_for
from ..mathematics.elementary import log
from ..normalization.softmax import exponential

# Elements of a block of scores: half of a small second-level cache.
comptime BLOCK = 65536
# Rows of a block at most.
comptime ROWS = 128
# Multiplications that take as long as one thread takes to read a byte of keys or values.
comptime BYTE = 5


@fieldwise_init
struct Heads(TrivialRegisterPassable):
    """Where the rows of a tensor lie: its sizes, and the distances of items, heads and rows."""

    var heads: Int
    var rows: Int
    var width: Int
    var item: Int
    var head: Int
    var row: Int

    @always_inline
    def at(self, item: Int, head: Int, row: Int) -> Int:
        """Position of a row."""
        return item * self.item + head * self.head + row * self.row


@always_inline
def heads_of(size: IndexList[4], stride: IndexList[4], swapped: Int64) -> Heads:
    """Of `[batch, heads, rows, width]`, or of `[batch, rows, heads, width]` if `swapped`."""
    if swapped != 0:
        return Heads(size[2], size[1], size[3], stride[0], stride[2], stride[1])
    return Heads(size[1], size[2], size[3], stride[0], stride[1], stride[2])


@always_inline
def _softmax_row[
    dtype: DType
](
    row: Address[dtype],
    length: Int,
    scale: Scalar[dtype],
    mask: Address[dtype],
    mask_step: Int,
    masked: Bool,
) -> Tuple[Scalar[dtype], Scalar[dtype]]:
    """Replaces scores by `exp(score - maximum)`; returns the maximum and the
    sum. A row that a mask forbids everything becomes zeros, with sum 0."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime width = simd_width_of[dtype]()
    comptime lowest = min_or_neg_inf[dtype]()
    var highest = SIMD[dtype, width](lowest)
    var most = Scalar[dtype](lowest)
    var j = 0
    while j + width <= length:
        var v = row.unsafe_load[width=width](j) * scale
        if masked:
            if mask_step == 1:
                v += mask.unsafe_load[width=width](j)
            else:
                v += mask[]
        row.unsafe_store[width=width](j, v)
        highest = max(highest, v)
        j += width
    while j < length:
        var v = row[unsafe_offset=j] * scale
        if masked:
            v += mask[unsafe_offset = j * mask_step]
        row[unsafe_offset=j] = v
        most = max(most, v)
        j += 1
    most = max(most, highest.reduce_max())
    if masked and most == lowest:
        # `max` drops NaN.
        var spoiled = False
        for i in range(length):
            spoiled = spoiled or isnan(row[unsafe_offset=i])
        if not spoiled:
            for i in range(length):
                row[unsafe_offset=i] = 0
            return (Scalar[dtype](0), Scalar[dtype](0))
    var sums = SIMD[dtype, width](0)
    var total = Scalar[dtype](0)
    j = 0
    while j + width <= length:
        var e = exponential(row.unsafe_load[width=width](j) - most)
        row.unsafe_store[width=width](j, e)
        sums += e
        j += width
    while j < length:
        var e = exponential(row[unsafe_offset=j] - most)
        row[unsafe_offset=j] = e
        total += e
        j += 1
    return (most, total + sums.reduce_add())


@always_inline
def _narrowed[
    dtype: DType, //
](to: Half, row: Address[dtype], length: Int, keys: Int) -> Scalar[dtype]:
    """Rounds exponentials to bfloat16, followed by zeros up to `keys`; returns the sum of what they
    are then. `to` may be where they are: what is written ends before what is still to be read."""
    comptime width = simd_width_of[dtype]()
    var sums = SIMD[dtype, width](0)
    var j = 0
    while j + width <= length:
        var some = row.unsafe_load[width=width](j).cast[DType.bfloat16]()
        to.unsafe_store(j, some)
        sums += some.cast[dtype]()
        j += width
    var total = sums.reduce_add()
    while j < length:
        var one = row[unsafe_offset=j].cast[DType.bfloat16]()
        to[unsafe_offset=j] = one
        total += one.cast[dtype]()
        j += 1
    for later in range(length, keys):
        to[unsafe_offset=later] = 0
    return total


@always_inline
def _allowed[
    dtype: DType, //
](mask: Address[dtype], rows: Int, row: Int, keys: Int, column: Int) -> Int:
    """How many of the first keys there are up to the last that a mask allows to any of its rows;
    at least one."""
    comptime assert dtype.is_floating_point(), "float only"
    comptime width = simd_width_of[dtype]()
    comptime lowest = min_or_neg_inf[dtype]()
    if column != 1:
        return keys
    var last = 1
    for i in range(rows):
        var line = mask.unsafe_offset(i * row)
        var j = keys
        while j - width >= last:
            if line.unsafe_load[width=width](j - width).ne(lowest).reduce_or():
                break
            j -= width
        while j > last and line[unsafe_offset = j - 1] == lowest:
            j -= 1
        last = max(last, j)
        if last == keys:
            break
    return last


@register("tmb_attention")
struct Attention:
    """`softmax(q k^T scale + mask) v` as `[batch, queries, heads, width]`, and
    the logarithms of the sums of exponentials, `[batch, heads, queries]`.

    Keys and values may have fewer heads than the queries, whose number is a multiple of theirs:
    neighbouring heads of the queries then share theirs. Keys at the end that a mask forbids to all
    queries of a block are not read, so a NaN there spoils nothing.

    Queries, keys and values may be bfloat16; the sums are float32 then, and so are mask and output.

    All but those sums may have any strides, save for the last axis: there neighbours follow each
    other, or in a mask are the same."""

    @staticmethod
    def execute[
        dtype: DType, value_type: DType, //, target: StaticString
    ](
        output: OutputTensor[dtype=dtype, rank=4, ...],
        log_sums: OutputTensor[dtype=dtype, rank=3, ...],
        q: InputTensor[dtype=value_type, rank=4, ...],
        k: InputTensor[dtype=value_type, rank=4, ...],
        v: InputTensor[dtype=value_type, rank=4, ...],
        mask: InputTensor[dtype=dtype, rank=4, ...],
        routine: Int64,
        set_threads: Int64,
        swapped_q: Int64,
        swapped_k: Int64,
        swapped_v: Int64,
        masked: Int64,
        causal: Int64,
        scaled: Int64,
        scale: Float64,
        ctx: DeviceContext,
    ) raises:
        comptime assert target == "cpu", "GPUs have MAX's own kernels"
        comptime assert dtype.is_floating_point(), "float only"
        # Then exponentials are rounded to bfloat16, as in torch, and what they give is divided by
        # their sum.
        comptime narrow = value_type != dtype
        comptime assert not narrow or value_type == DType.bfloat16, "no such sums"
        var gemm = Gemm(Int(routine), Int(set_threads))
        var batch = q.dim_size[0]()
        var qs = heads_of(q.shape(), q.strides(), swapped_q)
        var ks = heads_of(k.shape(), k.strides(), swapped_k)
        var vs = heads_of(v.shape(), v.strides(), swapped_v)
        var out = heads_of(output.shape(), output.strides(), 1)
        if batch * qs.heads * qs.rows * ks.rows * qs.width * vs.width == 0:
            return
        if ks.heads * vs.heads == 0 or qs.heads % ks.heads + qs.heads % vs.heads != 0:
            raise Error("the heads of the queries are no multiple of those of keys and values")
        var qp = untracked(q.unsafe_ptr())
        var kp = untracked(k.unsafe_ptr())
        var vp = untracked(v.unsafe_ptr())
        var op = untracked(output.unsafe_ptr())
        var lp = untracked(log_sums.unsafe_ptr())
        var mp = untracked(mask.unsafe_ptr())
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

        # One query a head: the heads that share keys are the rows of one product, which reads the
        # keys once. Not if threads would have nothing to do then.
        var shared = qs.heads // ks.heads
        var wanted = batch * ks.heads * ks.rows * (qs.width + vs.width) * size_of[value_type]()
        wanted = min(parallelism_level(None), wanted * BYTE // GRAIN)
        if (
            qs.rows == 1
            and shared > 1
            and ks.heads == vs.heads
            and not is_causal
            and batch * ks.heads >= wanted
        ):
            qs = Heads(ks.heads, shared, qs.width, qs.item, shared * qs.head, qs.head)
            out = Heads(ks.heads, shared, out.width, out.item, shared * out.head, out.head)
            mask_row = mask_head
            mask_head *= shared

        var block = max(8, min(ROWS, BLOCK // ks.rows))
        block = min(block, qs.rows)
        var blocks = ceildiv(qs.rows, block)
        var units = batch * qs.heads * blocks
        var cost = qs.rows * ks.rows * (qs.width + vs.width + 16)
        var read = ks.rows * (qs.width + vs.width) * size_of[value_type]() * blocks
        var tasks = tasks_for(units, batch * qs.heads * max(cost, read * BYTE))
        var scratch = List[Scalar[dtype]](unsafe_uninit_length=tasks * block * ks.rows)
        var sp = untracked(scratch.unsafe_ptr())

        def work(task: Int, lower: Int, upper: Int) {
            var gemm, var qs, var ks, var vs, var out, var qp, var kp, var vp, var op, var lp,
            var mp, var sp, var has_mask, var is_causal, var factor, var mask_column,
            var mask_row, var mask_head, var mask_item, var block, var blocks
        }:
            var scores = sp.unsafe_offset(task * block * ks.rows)
            var previous = gemm.begin()
            for unit in range(lower, upper):
                var item = unit // (qs.heads * blocks)
                var head = unit // blocks % qs.heads
                var first = unit % blocks * block
                var rows = min(block, qs.rows - first)
                var key_head = head // (qs.heads // ks.heads)
                var value_head = head // (qs.heads // vs.heads)
                var keys = ks.rows
                if is_causal:
                    keys = min(keys, first + rows)
                var plane = item * mask_item + head * mask_head
                if has_mask:
                    keys = _allowed(
                        mp.unsafe_offset(plane + first * mask_row),
                        rows if mask_row != 0 else 1,
                        mask_row,
                        keys,
                        mask_column,
                    )
                gemm.multiply(
                    rows,
                    keys,
                    qs.width,
                    qp.unsafe_offset(qs.at(item, head, first)),
                    qs.row,
                    False,
                    kp.unsafe_offset(ks.at(item, key_head, 0)),
                    ks.row,
                    True,
                    scores,
                    keys,
                )
                var sums = lp.unsafe_offset((item * qs.heads + head) * qs.rows + first)
                var shares = Array[Scalar[dtype], ROWS](fill=1)
                for i in range(rows):
                    var row = scores.unsafe_offset(i * keys)
                    var length = keys
                    if is_causal:
                        length = min(keys, first + i + 1)
                        for j in range(length, keys):
                            row[unsafe_offset=j] = 0
                    var most, total = _softmax_row(
                        row,
                        length,
                        factor,
                        mp.unsafe_offset(plane + (first + i) * mask_row),
                        mask_column,
                        has_mask,
                    )
                    if total == 0:
                        sums[unsafe_offset=i] = 0
                        continue
                    sums[unsafe_offset=i] = most + log(total)
                    comptime if narrow:
                        var weights = row.unsafe_bitcast[BFloat16]()
                        shares[i] = 1 / _narrowed(weights, row, length, keys)
                        continue
                    var share = 1 / total
                    comptime width = simd_width_of[dtype]()
                    var j = 0
                    while j + width <= length:
                        row.unsafe_store[width=width](
                            j, row.unsafe_load[width=width](j) * share
                        )
                        j += width
                    while j < length:
                        row[unsafe_offset=j] *= share
                        j += 1
                comptime ratio = size_of[dtype]() // size_of[value_type]()
                gemm.multiply(
                    rows,
                    vs.width,
                    keys,
                    scores.unsafe_bitcast[Scalar[value_type]](),
                    keys * ratio,
                    False,
                    vp.unsafe_offset(vs.at(item, value_head, 0)),
                    vs.row,
                    False,
                    op.unsafe_offset(out.at(item, head, first)),
                    out.row,
                )
                comptime if narrow:
                    for i in range(rows):
                        var line = op.unsafe_offset(out.at(item, head, first + i))
                        for j in range(vs.width):
                            line[unsafe_offset=j] *= shares[i]
            gemm.end(previous)

        in_numbered_ranges(work, units, tasks)
        _ = scratch^
