"""Layers of recurrent networks, as torch calls them for inference on CPU."""

from __future__ import annotations

import torch
from max.dtype import DType
from max.graph import DeviceRef, TensorType, TensorValue, ops

from torch_max_backend.convert.registry import Refusal, map_to
from torch_max_backend.ops.common.bank import number, permuted, routine
from torch_max_backend.ops.common.promotion import full
from torch_max_backend.ops.matmul import product

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


@map_to(aten.mkldnn_rnn_layer.default, supports=_one_lstm, kernels="recurrent", bank=True)
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
    results = ops.custom(
        "tmb_lstm",
        input.device,
        [
            ops.reshape(inner, [steps, batch, weight0.shape[0]]),
            weight1,
            ops.reshape(hx_, state),
            ops.reshape(cx_, state),
            number(reverse),
            *(routine(input.dtype, input.device) or [number(0)] * 2),
        ],
        [
            TensorType(input.dtype, [steps, *state], input.device),
            *[TensorType(input.dtype, state, input.device)] * 2,
        ],
    )
    output, hidden, cell = (r.tensor for r in results)
    # What mkldnn keeps for its backward pass.
    workspace = full(0, DType.uint8, [0], DeviceRef.CPU())
    return output, ops.reshape(hidden, hx_.shape), ops.reshape(cell, cx_.shape), workspace
