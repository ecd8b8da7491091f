"""Calls of the bank's routines (``bank/``) through the kernels of ``mojo_kernels``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from max.dtype import DType
from max.graph import DeviceRef, Graph, TensorValue, ops

from torch_max_backend.convert.context import current_node


def routine(dtype: DType, device: DeviceRef) -> list[TensorValue] | None:
    """The addresses of the matrix product of ``dtype`` and of the switch for its threads (0: the
    kernels' own product); ``None`` if products are MAX's own."""
    node = current_node()
    if not device.is_cpu() or not node.bank:
        return None
    if dtype.name not in node.addresses:
        return [number(0), number(0)]
    return [node.addresses[dtype.name], node.addresses["set_threads"]]


# As ``activation_name`` of ``mojo_kernels/gemm/activations.mojo`` numbers them.
ACTIVATIONS = (
    "none", "relu", "relu6", "hardsigmoid", "hardswish", "silu", "gelu", "gelu_tanh",
)  # fmt: skip


def number(value: int | bool) -> TensorValue:
    """An argument of a kernel that is no tensor."""
    return ops.constant(int(value), DType.int64, DeviceRef.CPU())


def nothing(dtype: DType, rank: int = 1) -> TensorValue:
    """Stands for a tensor argument that is left out: one without elements."""
    value = ops.constant(0, dtype, DeviceRef.CPU())
    return ops.broadcast_to(value, [0] * rank)


def permuted(value: TensorValue, order: Sequence[int]) -> TensorValue:
    """``value`` with its dimensions in another order, remembered for ``unpermuted``."""
    if value.rank < 2:
        return value
    source, done = _permutations().get(value._mlir_value, (None, ()))
    if source is not None:
        # In one go: the gradient of `x @ w.T` is by `w.T.T`.
        value, order = source, [done[i] for i in order]
        if order == sorted(order):
            return value
    result = ops.permute(value, list(order))
    _permutations()[result._mlir_value] = (value, tuple(order))
    return result


def unpermuted(value: TensorValue, order: Sequence[int]) -> TensorValue | None:
    """What ``value`` was permuted from, if that was by ``order``: kernels that take rows at any
    distance need no copy of it."""
    source, done = _permutations().get(value._mlir_value, (None, ()))
    return source if done == tuple(order) else None


def _permutations() -> dict[Any, Any]:
    return Graph.current.__dict__.setdefault("permutations", {})
