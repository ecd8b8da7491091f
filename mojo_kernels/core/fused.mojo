"""Elements of tensors whose producer or consumer MAX may make a part of the kernel. In a step
library they are plain memory with strides."""

from extensibility import OutputTensor
from extensibility import _FusedInputTensor as FusedInputTensor
from extensibility import _FusedInputVariadicTensors as FusedInputVariadicTensors
from extensibility.managed_tensor_slice import (
    DynamicTensor,
    InputFusion,
    StaticTensorSpecInternal,
    StaticTensorSpecList,
    _FusionPack,
    coord_to_index_list,
)
from layout import Coord
from std.memory import AddressSpace, Pointer
from std.utils import StaticTuple
from std.utils.index import IndexList

from .memory import Address
from .team import STEPS


@always_inline
def load[
    dtype: DType, rank: Int, //, width: Int
](x: FusedInputTensor[dtype=dtype, rank=rank, ...], at: IndexList[rank]) -> SIMD[dtype, width]:
    """The `width` elements of `x` from `at` on, along the last axis."""
    comptime if not STEPS:
        return x._fused_load[width](at)
    else:
        var offset = 0
        comptime for i in range(rank):
            offset += at[i] * x.stride_length[i]()
        var source = x.unsafe_ptr()
        comptime if width == 1:
            return source.unsafe_load[width=width](offset)
        else:
            var step = x.stride_length[rank - 1]()
            if step == 1:
                return source.unsafe_load[width=width](offset)
            var result = SIMD[dtype, width](0)
            comptime for i in range(width):
                result[i] = source[unsafe_offset = offset + i * step]
            return result


@always_inline
def load[
    dtype: DType, rank: Int, //, width: Int
](x: FusedInputTensor[dtype=dtype, rank=rank, ...], at: Coord) -> SIMD[dtype, width]:
    """The `width` elements of `x` from `at` on, along the last axis."""
    comptime if not STEPS:
        return x._fused_load[width](at)
    else:
        comptime assert at.rank == rank
        return load[width](x, rebind[IndexList[rank]](coord_to_index_list(at)))


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


struct Plain(InputFusion):
    """Says of a tensor in a list that nothing computes it: `load` reads its memory."""

    def __init__(out self):
        pass

    def load[
        dtype: DType, rank: Int, simd_width: Int, element_alignment: Int = 1
    ](self, idx: IndexList[rank]) -> SIMD[dtype, simd_width]:
        comptime assert False, "`load` of this file reads it"


comptime _alignment[dtype: DType, rank: Int, i: Int] = StaticTensorSpecInternal[dtype, rank](
    1, AddressSpace.GENERIC
)
comptime _unknown[rank: Int, i: Int] = IndexList[rank](-1)
comptime _Plain[size: Int] = TypeList.splat[Trait=InputFusion, count=size, type=Plain]()
comptime TensorList[dtype: DType, rank: Int, size: Int] = FusedInputVariadicTensors[
    dtype=dtype,
    rank=rank,
    size=size,
    *_Plain[size],
    static_specs=StaticTensorSpecList[
        dtype=dtype,
        rank=rank,
        internals_list=ParameterList.tabulate[size, _alignment[dtype, rank, _]](),
        shapes_list=ParameterList.tabulate[size, _unknown[rank, _]](),
        strides_list=ParameterList.tabulate[size, _unknown[rank, _]](),
    ](),
]


@always_inline
def tensor_list[
    dtype: DType, rank: Int, size: Int
](words: Address[DType.int64]) -> TensorList[dtype, rank, size]:
    """The tensors that a step hands a kernel of a variable number of them: of each its address,
    sizes and strides, one after the other in `words`."""
    comptime length = 1 + 2 * rank
    var addresses = StaticTuple[Pointer[Scalar[dtype], MutUntrackedOrigin], size](
        fill=words.unsafe_bitcast[Pointer[Scalar[dtype], MutUntrackedOrigin]]()[]
    )
    var shapes = StaticTuple[IndexList[rank], size](fill=IndexList[rank](0))
    # It has no fields.
    var fusions = words.unsafe_bitcast[_FusionPack[*_Plain[size]]]()[]
    var result = TensorList[dtype, rank, size](addresses, shapes, fusions)
    comptime for i in range(size):
        var at = words.unsafe_offset(i * length)
        var shape = IndexList[rank](0)
        var strides = IndexList[rank](0)
        comptime for j in range(rank):
            shape[j] = Int(at[unsafe_offset = 1 + j])
            strides[j] = Int(at[unsafe_offset = 1 + rank + j])
        result._tensors[i] = DynamicTensor[dtype, rank](
            at.unsafe_bitcast[Pointer[Scalar[dtype], MutUntrackedOrigin]]()[], shape, strides
        )
    return result
