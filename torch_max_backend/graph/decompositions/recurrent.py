"""Recurrent layers, of the operators of `recurrent_steps.py` where those compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import torch_max_backend.graph.decompositions.recurrent_steps  # noqa: F401  defines the operators
from torch_max_backend.compat.decompositions import (
    gather_params,
    gru_cell,
    one_layer_lstm,
    one_layer_rnn,
    rnn_cell,
)
from torch_max_backend.compat.operators import OpOverload
from torch_max_backend.compat.tracing import in_functorch

aten = torch.ops.aten
own = torch.ops.torch_max_backend

_FLOATS = (torch.float32, torch.float64)


def _by_input(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """``[steps, batch, lines]``, as one product, to which a kernel can add the bias at once."""
    found = F.linear(input.flatten(0, 1), weight, bias)
    return found.view(*input.shape[:2], weight.shape[0])


def _lstm_layer(
    input: Tensor,
    state: tuple[Tensor, Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    reverse: bool = False,
) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    bias = params[2] + params[3] if has_biases else None
    inner = _by_input(input, params[0], bias)
    output, hidden, cell, _, _ = own.lstm_steps(inner, params[1], *state, reverse)
    return output, (hidden, cell)


def _gru_layer(
    input: Tensor,
    state: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    reverse: bool = False,
) -> tuple[Tensor, Tensor]:
    of_input, of_state = params[2:4] if has_biases else (None, None)
    inner = _by_input(input, params[0], of_input)
    output, hidden, _ = own.gru_steps(inner, params[1], of_state, state, reverse)
    return output, hidden


def _fits(tensors: Sequence[Tensor]) -> bool:
    """Whether the operators compute this. The transformations of ``torch.func`` know no rules
    for them, and autocast none of their dtypes."""
    if torch.is_autocast_enabled("cpu") or in_functorch():
        return False
    dtypes = {t.dtype for t in tensors}
    on_cpu = all(t.device.type == "cpu" for t in tensors)
    return on_cpu and len(dtypes) == 1 and dtypes.pop() in _FLOATS


def _stacked(
    layer: Callable[..., tuple[Tensor, Any]],
    input: Tensor,
    states: Sequence[Any],
    params: Sequence[Sequence[Tensor]],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, list[Any]]:
    """All layers. torch's helper for this leaves dropout between them out."""
    input = input.transpose(0, 1) if batch_first else input
    directions = 2 if bidirectional else 1
    finals: list[Any] = []
    for i in range(num_layers):
        outputs = []
        for reverse in (False, True)[:directions]:
            at = len(finals)
            output, final = layer(input, states[at], params[at], has_biases, reverse=reverse)
            outputs.append(output)
            finals.append(final)
        input = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and i < num_layers - 1:
            input = torch.dropout(input, dropout, train=True)
    return input.transpose(0, 1) if batch_first else input, finals


def _lstm(
    input: Tensor, hx: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, *settings: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers,
    float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)"""
    hidden, cell = hx
    projected = hidden.shape[2] != cell.shape[2]
    layer = one_layer_lstm
    if not projected and _fits([input, *hx, *params]):
        layer = _lstm_layer
    states = list(zip(hidden.unbind(0), cell.unbind(0), strict=True))
    grouped = gather_params(params, has_biases, projected)
    output, finals = _stacked(layer, input, states, grouped, has_biases, *settings)
    last_hidden, last_cell = (torch.stack(s) for s in zip(*finals, strict=True))
    return output, last_hidden, last_cell


def _of_one_state(
    layer: Callable[..., tuple[Tensor, Tensor]],
    input: Tensor,
    hx: Tensor,
    params: Sequence[Tensor],
    has_biases: bool,
    *settings: Any,
) -> tuple[Tensor, Tensor]:
    """Layers that hand on their hidden state alone."""
    grouped = gather_params(params, has_biases, False)
    output, finals = _stacked(layer, input, hx.unbind(0), grouped, has_biases, *settings)
    return output, torch.stack(finals)


def _gru(
    input: Tensor, hx: Tensor, params: Sequence[Tensor], has_biases: bool, *settings: Any
) -> tuple[Tensor, Tensor]:
    """gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers,
    float dropout, bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor)"""
    steps = partial(one_layer_rnn, hidden_fn=gru_cell)
    layer: Callable[..., Any] = _gru_layer if _fits([input, hx, *params]) else steps
    return _of_one_state(layer, input, hx, params, has_biases, *settings)


def _plain(function: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Layers whose state is a function of one product, step by step, as torch takes them apart."""
    return partial(_of_one_state, partial(one_layer_rnn, hidden_fn=rnn_cell(function)))


KERNELS: dict[OpOverload, Callable[..., Any]] = {
    aten.lstm.input: _lstm,
    aten.gru.input: _gru,
    aten.rnn_tanh.input: _plain(torch.tanh),
    aten.rnn_relu.input: _plain(torch.relu),
}
"""What layers are while the backend traces, by the overload that users call."""
