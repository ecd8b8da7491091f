"""Pointers to memory whose owner is kept alive by whoever hands it on."""

from std.memory import Pointer

comptime Untracked = UntrackedOrigin[mut=True]
comptime Address[dtype: DType] = Pointer[Scalar[dtype], Untracked]


@always_inline
def untracked[T: AnyType, origin: MutOrigin, //](pointer: Pointer[T, origin]) -> Pointer[T, Untracked]:
    """The same pointer, which does not keep what it points to alive."""
    return pointer.unsafe_origin_cast[Untracked]()
