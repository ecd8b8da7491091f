"""What stands in step libraries for the parts of MAX that kernels name: tensors are plain memory with
sizes and strides, and nothing else is there to call. With MAX's own a library takes a quarter to a
half longer to compile."""

from std.utils.index import IndexList

from .memory import Address


def register(name: StaticString):
    """Names a kernel to MAX; shells call it by its struct."""
    pass


struct DeviceContext(Copyable, Movable):
    """A device's queue, which no step has."""

    var nothing: Int


struct _Size(TrivialRegisterPassable):
    """A part of a position."""

    var size: Int

    @always_inline
    def __init__(out self, size: Int):
        self.size = size

    @always_inline
    def value(self) -> Int:
        return self.size


struct Coord[rank: Int](TrivialRegisterPassable):
    """A position in a tensor."""

    var at: IndexList[Self.rank]

    @always_inline
    def __init__(out self, at: IndexList[Self.rank]):
        self.at = at

    @always_inline
    def __init__(out self: Coord[1], at: Int):
        self.at = IndexList[1](at)

    @always_inline
    def __getitem__(self, axis: Int) -> _Size:
        return _Size(self.at[axis])


struct Tensor[dtype: DType, rank: Int](TrivialRegisterPassable):
    """Memory with sizes and strides."""

    var pointer: Address[Self.dtype]
    var sizes: IndexList[Self.rank]
    var steps: IndexList[Self.rank]

    @always_inline
    def __init__(
        out self,
        pointer: Address[Self.dtype],
        sizes: IndexList[Self.rank],
        strides: IndexList[Self.rank],
    ):
        self.pointer = pointer
        self.sizes = sizes
        self.steps = strides

    @always_inline
    def unsafe_ptr(self) -> Address[Self.dtype]:
        return self.pointer

    @always_inline
    def dim_size[axis: Int](self) -> Int:
        return self.sizes[axis]

    @always_inline
    def dim_size(self, axis: Int) -> Int:
        return self.sizes[axis]

    @always_inline
    def stride_length[axis: Int](self) -> Int:
        return self.steps[axis]

    @always_inline
    def shape(self) -> IndexList[Self.rank]:
        return self.sizes

    @always_inline
    def strides(self) -> IndexList[Self.rank]:
        return self.steps

    @always_inline
    def size(self) -> Int:
        var count = 1
        comptime for axis in range(Self.rank):
            count *= self.sizes[axis]
        return count

    @always_inline
    def load[width: Int](self, at: IndexList[Self.rank]) -> SIMD[Self.dtype, width]:
        """The `width` elements from `at` on, along the last axis."""
        var offset = 0
        comptime for axis in range(Self.rank):
            offset += at[axis] * self.steps[axis]
        comptime if width == 1:
            return self.pointer.unsafe_load[width=width](offset)
        else:
            var step = self.steps[Self.rank - 1]
            if step == 1:
                return self.pointer.unsafe_load[width=width](offset)
            var result = SIMD[Self.dtype, width](0)
            comptime for i in range(width):
                result[i] = self.pointer[unsafe_offset = offset + i * step]
            return result

    @always_inline
    def load[width: Int](self, at: Coord) -> SIMD[Self.dtype, width]:
        """The `width` elements from `at` on, along the last axis."""
        comptime assert at.rank == Self.rank
        return self.load[width](rebind[IndexList[Self.rank]](at.at))

    @always_inline
    def _fused_load[width: Int](self, at: IndexList[Self.rank]) -> SIMD[Self.dtype, width]:
        return self.load[width](at)

    @always_inline
    def _fused_load[width: Int](self, at: Coord) -> SIMD[Self.dtype, width]:
        return self.load[width](at)

    @always_inline
    def store[
        width: SIMDLength
    ](self, at: IndexList[Self.rank], value: SIMD[Self.dtype, width]):
        """Of graphs of MAX alone: `store` of `fused.mojo` is for both."""
        pass


comptime InputTensor = Tensor
comptime OutputTensor = Tensor
comptime _FusedInputTensor = Tensor
comptime _MutableInputTensor = Tensor


# What only graphs of MAX call: names, for code that a step library leaves out.


def foreach[
    Function: AnyType, //, *, target: StaticString
](function: Function, output: Tensor, ctx: DeviceContext) raises:
    pass


def elementwise[
    Function: AnyType, //, *, simd_width: Int, target: StaticString
](function: Function, shape: Coord, ctx: DeviceContext) raises:
    pass


def sync_parallelize[Function: AnyType, //](work: Function, tasks: Int):
    pass


def parallelism_level(ctx: NoneType) -> Int:
    return 1
