"""Elements of tensors whose producer or consumer MAX may make a part of the kernel. In a step
library they are plain memory with strides."""

from extensibility import OutputTensor
from extensibility import _FusedInputTensor as FusedInputTensor
from layout import Coord
from std.utils.index import IndexList

from .team import STEPS


@always_inline
def load[
    dtype: DType, rank: Int, //, width: Int
](x: FusedInputTensor[dtype=dtype, rank=rank, ...], at: IndexList[rank]) -> SIMD[dtype, width]:
    """The `width` elements of `x` from `at` on, along the last axis."""
    return x._fused_load[width](at)


@always_inline
def load[
    dtype: DType, rank: Int, //, width: Int
](x: FusedInputTensor[dtype=dtype, rank=rank, ...], at: Coord) -> SIMD[dtype, width]:
    """The `width` elements of `x` from `at` on, along the last axis."""
    return x._fused_load[width](at)


@always_inline
def store[
    dtype: DType, rank: Int, width: SIMDLength, //
](to: OutputTensor[dtype=dtype, rank=rank, ...], at: IndexList[rank], value: SIMD[dtype, width]):
    """Makes `value` the elements of `to` from `at` on, along the last axis."""
    comptime if not STEPS:
        to.store[width](at, value)
    else:
        var offset = 0
        comptime for i in range(rank):
            offset += at[i] * to.stride_length[i]()
        var sink = to.unsafe_ptr()
        comptime if width == 1:
            sink.unsafe_store(offset, value)
        else:
            var step = to.stride_length[rank - 1]()
            if step == 1:
                sink.unsafe_store(offset, value)
                return
            comptime for i in range(width):
                sink[unsafe_offset = offset + i * step] = value[i]
