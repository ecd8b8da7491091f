"""Pointers to memory whose owner is kept alive by whoever hands it on."""

from std.memory import Pointer
from std.sys import size_of

comptime Untracked = UntrackedOrigin[mut=True]
comptime Address[dtype: DType] = Pointer[Scalar[dtype], Untracked]

# Bytes of a cache line.
comptime CACHE_LINE = 64


@always_inline
def untracked[T: AnyType, origin: MutOrigin, //](pointer: Pointer[T, origin]) -> Pointer[T, Untracked]:
    """The same pointer, which does not keep what it points to alive."""
    return pointer.unsafe_origin_cast[Untracked]()


@always_inline
def spare[dtype: DType]() -> Int:
    """Numbers to ask for beyond those needed where the first is to begin a cache line."""
    return CACHE_LINE // size_of[Scalar[dtype]]() - 1


@always_inline
def line_start[
    dtype: DType, origin: MutOrigin, //
](pointer: Pointer[Scalar[dtype], origin]) -> Address[dtype]:
    """Where the first cache line begins in memory with `spare` numbers more than needed: vectors
    that cross lines take twice the time."""
    return untracked(pointer).unsafe_offset(-Int(pointer) % CACHE_LINE // size_of[Scalar[dtype]]())
