"""Layers of recurrent networks on CPU: an LSTM's as torch has it for inference, and the steps of
``graph/decompositions/recurrent.py``."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from max.dtype import DType
from max.graph import DeviceRef, Dim, TensorType, TensorValue, ops

from torch_max_backend.convert.context import expected, is_used
from torch_max_backend.graph.decompositions import recurrent  # noqa: F401  it defines operators
from torch_max_backend.ops.common.bank import nothing, number, permuted, routine
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.matmul import product
from torch_max_backend.registry.lowerings import Refusal, map_to

aten = torch.ops.aten

# Of mkldnn's kinds of recurrent layers.
_LSTM = 2


def _one_lstm(
    input: torch.Tensor,
    mode: int,
    num_layers: int,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
    batch_sizes: list[int],
) -> Refusal | None:
    if mode != _LSTM or num_layers != 1 or bidirectional or batch_first or train or batch_sizes:
        return Refusal("only one layer of an LSTM in one direction, steps first, for inference")
    return None


@map_to(aten.mkldnn_rnn_layer.default, supports=_one_lstm, kernels="recurrent.lstm", bank=True)
def mkldnn_rnn_layer(
    input: TensorValue,
    weight0: TensorValue,
    weight1: TensorValue,
    weight2: TensorValue,
    weight3: TensorValue,
    hx_: TensorValue,
    cx_: TensorValue,
    reverse: bool,
    batch_sizes: list[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[TensorValue, TensorValue, TensorValue, TensorValue]:
    """mkldnn_rnn_layer(Tensor input, Tensor weight0, Tensor weight1, Tensor weight2, Tensor
    weight3, Tensor hx_, Tensor cx_, bool reverse, int[] batch_sizes, int mode, int hidden_size,
    int num_layers, bool has_biases, bool bidirectional, bool batch_first, bool train)
    -> (Tensor, Tensor, Tensor, Tensor)"""
    steps, batch, width = input.shape
    state = [batch, hidden_size]
    bias = weight2 + weight3 if has_biases else None
    rows = ops.reshape(input, [steps * batch, width])
    inner = product(rows, permuted(weight0, [1, 0]), bias)
    inner = ops.reshape(inner, [steps, batch, weight0.shape[0]])
    output, hidden, cell, _, _ = _steps(
        "tmb_lstm",
        [inner, weight1, ops.reshape(hx_, state), ops.reshape(cx_, state)],
        reverse,
        [[steps, *state], state, state, [0, 0, 0], [0, 0, 0]],
    )
    # What mkldnn keeps for its backward pass.
    workspace = full(0, DType.uint8, [0], DeviceRef.CPU())
    return output, ops.reshape(hidden, hx_.shape), ops.reshape(cell, cx_.shape), workspace


def _steps(
    kernel: str,
    operands: Sequence[TensorValue],
    reverse: bool,
    shapes: Sequence[Sequence[int | Dim]],
) -> tuple[TensorValue, ...]:
    """What a kernel returns of operands of one dtype."""
    dtype, device = operands[0].dtype, operands[0].device
    addresses = routine(dtype, device) or [number(0)] * 2
    types = [TensorType(dtype, shape, device) for shape in shapes]
    results = ops.custom(kernel, device, [*operands, number(reverse), *addresses], types)
    return tuple(r.tensor for r in results)


def _used_steps(
    kernel: str, operands: Sequence[TensorValue], reverse: bool, count: int, always: int
) -> tuple[TensorValue | None, ...]:
    """The ``count`` results of the node: those after the first ``always``, which have three
    dimensions, take no memory where nothing uses them."""
    kept = [i < always or is_used(i) for i in range(count)]
    shapes = [expected(i).shape if kept[i] else (0, 0, 0) for i in range(count)]
    results = _steps(kernel, operands, reverse, shapes)
    return tuple(r if kept[i] else None for i, r in enumerate(results))


def _given(value: TensorValue | None, like: TensorValue, rank: int) -> TensorValue:
    return nothing(like.dtype, rank) if value is None else value


@map_to(torch.ops.torch_max_backend.lstm_steps.default, kernels="recurrent.lstm", bank=True)
def lstm_steps(
    inner: TensorValue, weight: TensorValue, hidden: TensorValue, cell: TensorValue, reverse: bool
) -> tuple[TensorValue | None, ...]:
    """lstm_steps(Tensor inner, Tensor weight, Tensor hidden, Tensor cell, bool reverse)
    -> (Tensor output, Tensor last_hidden, Tensor last_cell, Tensor gates, Tensor cells)"""
    return _used_steps("tmb_lstm", [inner, weight, hidden, cell], reverse, 5, 3)


@map_to(
    torch.ops.torch_max_backend.lstm_steps_backward.default, kernels="recurrent.lstm", bank=True
)
def lstm_steps_backward(
    grad_output: TensorValue | None,
    grad_hidden: TensorValue | None,
    grad_cell: TensorValue | None,
    gates: TensorValue,
    cells: TensorValue,
    cell: TensorValue,
    weight: TensorValue,
    reverse: bool,
) -> tuple[TensorValue | None, ...]:
    """lstm_steps_backward(Tensor? grad_output, Tensor? grad_hidden, Tensor? grad_cell,
    Tensor gates, Tensor cells, Tensor cell, Tensor weight, bool reverse)
    -> (Tensor grad_inner, Tensor grad_hidden, Tensor grad_cell)"""
    given = [
        _given(grad_output, gates, 3), _given(grad_hidden, gates, 2), _given(grad_cell, gates, 2)
    ]  # fmt: skip
    operands = [*given, gates, cells, cell, weight]
    return _used_steps("tmb_lstm_backward", operands, reverse, 3, 3)


@map_to(torch.ops.torch_max_backend.gru_steps.default, kernels="recurrent.gru", bank=True)
def gru_steps(
    inner: TensorValue,
    weight: TensorValue,
    bias: TensorValue | None,
    hidden: TensorValue,
    reverse: bool,
) -> tuple[TensorValue | None, ...]:
    """gru_steps(Tensor inner, Tensor weight, Tensor? bias, Tensor hidden, bool reverse)
    -> (Tensor output, Tensor last_hidden, Tensor gates)"""
    operands = [inner, weight, _given(bias, weight, 1), hidden]
    return _used_steps("tmb_gru", operands, reverse, 3, 2)


@map_to(torch.ops.torch_max_backend.gru_steps_backward.default, kernels="recurrent.gru", bank=True)
def gru_steps_backward(
    grad_output: TensorValue | None,
    grad_hidden: TensorValue | None,
    gates: TensorValue,
    output: TensorValue,
    hidden: TensorValue,
    weight: TensorValue,
    reverse: bool,
) -> tuple[TensorValue | None, ...]:
    """gru_steps_backward(Tensor? grad_output, Tensor? grad_hidden, Tensor gates, Tensor output,
    Tensor hidden, Tensor weight, bool reverse)
    -> (Tensor grad_inner, Tensor grad_products, Tensor grad_hidden)"""
    given = [_given(grad_output, gates, 3), _given(grad_hidden, gates, 2)]
    operands = [*given, gates, output, hidden, weight]
    return _used_steps("tmb_gru_backward", operands, reverse, 3, 3)
