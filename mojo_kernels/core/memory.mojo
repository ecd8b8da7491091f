"""Pointers to memory whose owner is kept alive by whoever hands it on."""

comptime Untracked = UntrackedOrigin[mut=True]
comptime Address[dtype: DType] = Pointer[Scalar[dtype], Untracked]
