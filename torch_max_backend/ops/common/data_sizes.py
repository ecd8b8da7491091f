"""Results whose size depends on data: the sizes become dims of the graph."""

from __future__ import annotations

from typing import TypeAlias

import torch
from max.dtype import DType
from max.graph import BufferType, DeviceRef, Dim, Graph, TensorType, TensorValue, ops

from torch_max_backend.ops.common.bank import number
from torch_max_backend.ops.common.promotion import to_dtype
from torch_max_backend.registry.lowerings import Refusal

Size: TypeAlias = int | Dim


ON_CPU = "what a mask picks is counted on CPU only"


def on_cpu(self: torch.Tensor) -> Refusal | None:
    """The refusal of what only CPUs count."""
    if self.device.type != "cpu":
        return Refusal(ON_CPU)
    return None


def numbers(count: TensorValue, size: Size) -> TensorValue:
    """``0, 1, ..., count - 1`` of shape ``[size]``: binds a new dim to a count that the graph
    computed, and checks one that is known already.

    Args:
        count: int64 of shape [1].
        size: What torch calls the size.
    """
    stop = ops.reshape(count, [])
    if isinstance(size, int):
        fresh = ops.range(0, stop, 1, out_dim=fresh_size(), dtype=DType.int64, device=count.device)
        return ops.rebind(fresh, [size], "the number of selected elements is not the one expected")
    made = ops.range(0, stop, 1, out_dim=size, dtype=DType.int64, device=count.device)
    # MAX's compiler drops a range that nothing reads, and crashes where its dim is used (26.7).
    ops.buffer_store(ops.buffer_create(BufferType(DType.int64, [size], count.device)), made)
    return made


def fresh_size() -> Dim:
    """A dim of a name of its own, for a size that torch's metadata does not tell."""
    made = Graph.current.__dict__.setdefault("fresh_sizes", [])
    made.append(Dim(f"counted{len(made)}"))
    return made[-1]


def count_true(flags: TensorValue) -> TensorValue:
    """How many elements of a bool value are true, as int64 of shape [1]."""
    flat = ops.reshape(flags, [-1]) if flags.rank != 1 else flags
    kind = TensorType(DType.int64, [1], flags.device)
    return ops.custom("tmb_count_true", flags.device, [flat], [kind])[0].tensor


def true_at(flags: TensorValue, size: Size) -> TensorValue:
    """The indices ``[size, rank]`` of the elements of a value that are not zero, in order; another
    number of them than a size that is known already is an error of the run."""
    flags = to_dtype(flags, DType.bool)
    return _places(flags, numbers(count_true(flags), size), size, 0, exact=True)


def taken_where(x: TensorValue, flags: TensorValue, size: Size) -> TensorValue:
    """The slices ``x[:, i]`` of a value ``[outer, n, inner]`` where ``flags[i]`` is true, in order:
    ``[outer, size, inner]``; another number of them is an error of the run."""
    some = numbers(count_true(flags), size)
    kind = TensorType(x.dtype, [x.shape[0], size, x.shape[2]], x.device)
    return ops.custom("tmb_take_true", x.device, [x, flags, some], [kind])[0].tensor


def first_true_at(flags: TensorValue, size: Size, fill: int) -> TensorValue:
    """As ``true_at``, but the first ``size`` of them; missing rows are ``fill``."""
    flags = to_dtype(flags, DType.bool)
    some = ops.broadcast_to(ops.constant(0, DType.int64, DeviceRef.CPU()), [size])
    return _places(flags, some, size, fill, exact=False)


def _places(
    flags: TensorValue, some: TensorValue, size: Size, fill: int, exact: bool
) -> TensorValue:
    kind = TensorType(DType.int64, [size, flags.rank], flags.device)
    values, settings = [flags, some, number(fill)], {"exact": exact}
    return ops.custom("tmb_true_at", flags.device, values, [kind], settings)[0].tensor
