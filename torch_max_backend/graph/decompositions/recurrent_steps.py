"""Recurrent layers as one operator for all steps, and its gradient as one.

torch unrolls these layers into a graph that grows with the length. The products by the hidden state
and what follows them are operators of their own here; the products by the input, and those that
the weights' gradients consist of, are done for all steps at once in ATen.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torch_max_backend.compat.tracing import check

aten = torch.ops.aten
own = torch.ops.torch_max_backend
_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define(
    "lstm_steps(Tensor inner, Tensor weight, Tensor hidden, Tensor cell, bool reverse) -> "
    "(Tensor output, Tensor last_hidden, Tensor last_cell, Tensor gates, Tensor cells)"
)
_library.define(
    "lstm_steps_backward(Tensor? grad_output, Tensor? grad_hidden, Tensor? grad_cell, "
    "Tensor gates, Tensor cells, Tensor cell, Tensor weight, bool reverse) -> "
    "(Tensor grad_inner, Tensor grad_hidden, Tensor grad_cell)"
)
_library.define(
    "gru_steps(Tensor inner, Tensor weight, Tensor? bias, Tensor hidden, bool reverse) -> "
    "(Tensor output, Tensor last_hidden, Tensor gates)"
)
_library.define(
    "gru_steps_backward(Tensor? grad_output, Tensor? grad_hidden, Tensor gates, Tensor output, "
    "Tensor hidden, Tensor weight, bool reverse) -> "
    "(Tensor grad_inner, Tensor grad_products, Tensor grad_hidden)"
)


def _times(steps: int, reverse: bool) -> Iterable[int]:
    return reversed(range(steps)) if reverse else range(steps)


def _before(states: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """``[steps, batch, size]``: the state before each step."""
    # All states, then all but one: a part that lacks one of a symbolic length could have length 1.
    if reverse:
        return torch.cat([states, first.unsqueeze(0)])[1:]
    return torch.cat([first.unsqueeze(0), states])[:-1]


def _gradient_of_weight(products: Tensor, before: Tensor) -> Tensor:
    """Of the gradients ``[steps, batch, lines]`` of products with ``[steps, batch, size]``."""
    return products.flatten(0, 1).t() @ before.flatten(0, 1)


def _or_zeros(grad: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if grad is None else grad


def _lstm_steps(
    inner: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The steps of a layer in one direction.

    Args:
        inner: What the input adds to the gates (input, forget, cell, output), with all biases:
            ``[steps, batch, 4 * size]``, floats.
        weight: ``[4 * size, size]``.
        hidden: The state before the first step, ``[batch, size]``; so is ``cell``.
        reverse: Whether the last input comes first.

    Returns:
        The hidden state of each step, the last hidden and cell states, the gates and cell states
        of each step, which the gradient needs.
    """
    output, _, _, gates, cells = _like_lstm_steps(inner, weight, hidden, cell, reverse)
    h, c = hidden.clone(), cell.clone()
    for t in _times(inner.shape[0], reverse):
        i, f, g, o = (inner[t] + h @ weight.t()).chunk(4, 1)
        i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
        c = f * c + i * g
        h = o * c.tanh()
        output[t], gates[t], cells[t] = h, torch.cat([i, f, g, o], 1), c
    return output, h, c, gates, cells


def _lstm_steps_backward(
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    gates: Tensor,
    cells: Tensor,
    cell: Tensor,
    weight: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``inner``, ``hidden`` and ``cell``, of those of the first three results;
    ``None`` stands for zeros."""
    found = torch.empty_like(gates)
    dh, dc = _or_zeros(grad_hidden, cell).clone(), _or_zeros(grad_cell, cell).clone()
    before = _before(cells, cell, reverse)
    for t in _times(gates.shape[0], not reverse):
        i, f, g, o = gates[t].chunk(4, 1)
        out = cells[t].tanh()
        dh = dh if grad_output is None else dh + grad_output[t]
        dc = dc + dh * o * (1 - out * out)
        parts = [
            dc * g * i * (1 - i),
            dc * before[t] * f * (1 - f),
            dc * i * (1 - g * g),
            dh * out * o * (1 - o),
        ]
        found[t] = torch.cat(parts, 1)
        dc, dh = dc * f, found[t] @ weight
    return found, dh, dc


def _gru_steps(
    inner: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The steps of a layer in one direction.

    Args:
        inner: What the input adds to the gates (reset, update, new), with its bias:
            ``[steps, batch, 3 * size]``, floats.
        weight: ``[3 * size, size]``.
        bias: ``[3 * size]``, added to the products by ``weight``.
        hidden: The state before the first step, ``[batch, size]``.
        reverse: Whether the last input comes first.

    Returns:
        The hidden state of each step, the last one, and what the gradient needs of each step: the
        gates and the product that the reset gate scales, ``[steps, batch, 4 * size]``.
    """
    output, _, gates = _like_gru_steps(inner, weight, bias, hidden, reverse)
    h = hidden.clone()
    for t in _times(inner.shape[0], reverse):
        (ir, iz, new), (hr, hz, hn) = inner[t].chunk(3, 1), F.linear(h, weight, bias).chunk(3, 1)
        r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
        n = (new + hn * r).tanh()
        h = (h - n) * z + n
        output[t], gates[t] = h, torch.cat([r, z, n, hn], 1)
    return output, h, gates


def _gru_steps_backward(
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    gates: Tensor,
    output: Tensor,
    hidden: Tensor,
    weight: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of ``inner``, of the products by ``weight`` and of ``hidden``, of those of the
    first two results; ``None`` stands for zeros."""
    shape = (*output.shape[:2], 3 * output.shape[2])
    found, products = gates.new_empty(shape), gates.new_empty(shape)
    dh = _or_zeros(grad_hidden, hidden).clone()
    before = _before(output, hidden, reverse)
    for t in _times(gates.shape[0], not reverse):
        r, z, n, hn = gates[t].chunk(4, 1)
        dh = dh if grad_output is None else dh + grad_output[t]
        dz = dh * (before[t] - n) * z * (1 - z)
        dn = dh * (1 - z) * (1 - n * n)
        dr = dn * hn * r * (1 - r)
        found[t], products[t] = torch.cat([dr, dz, dn], 1), torch.cat([dr, dz, dn * r], 1)
        dh = dh * z + products[t] @ weight
    return found, products, dh


def _check(inner: Tensor, weight: Tensor, parts: int, *states: Tensor) -> None:
    """Kernels rely on these sizes."""
    batch, lines = inner.shape[1:]
    size = weight.shape[1]
    fitting = lines == parts * size and weight.shape[0] == lines
    fitting = fitting and all(s.shape[0] == batch and s.shape[1] == size for s in states)
    check(
        fitting,
        lambda: (
            f"a recurrent layer's input {tuple(inner.shape)}, weight {tuple(weight.shape)} and "
            f"states {[tuple(s.shape) for s in states]} do not fit each other"
        ),
    )


def _like_lstm_steps(
    inner: Tensor, weight: Tensor, hidden: Tensor, cell: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    _check(inner, weight, 4, hidden, cell)
    each = (inner.shape[0], *hidden.shape)
    sizes = (each, hidden.shape, cell.shape, inner.shape, each)
    output, last_hidden, last_cell, gates, cells = (inner.new_empty(s) for s in sizes)
    return output, last_hidden, last_cell, gates, cells


def _like_lstm_steps_backward(
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    gates: Tensor,
    cells: Tensor,
    cell: Tensor,
    weight: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return gates.new_empty(gates.shape), cell.new_empty(cell.shape), cell.new_empty(cell.shape)


def _like_gru_steps(
    inner: Tensor, weight: Tensor, bias: Tensor | None, hidden: Tensor, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    _check(inner, weight, 3, hidden)
    (batch, size), steps = hidden.shape, inner.shape[0]
    sizes = ((steps, batch, size), (batch, size), (steps, batch, 4 * size))
    output, last_hidden, gates = (inner.new_empty(s) for s in sizes)
    return output, last_hidden, gates


def _like_gru_steps_backward(
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    gates: Tensor,
    output: Tensor,
    hidden: Tensor,
    weight: Tensor,
    reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (*output.shape[:2], 3 * output.shape[2])
    return gates.new_empty(shape), gates.new_empty(shape), hidden.new_empty(hidden.shape)


def _keep_of_lstm(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, hidden, cell, ctx.reverse = inputs
    states, _, _, gates, cells = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(gates, cells)
    ctx.save_for_backward(states, gates, cells, hidden, cell, weight)


def _lstm_gradients(
    ctx: Any,
    grad_output: Tensor | None,
    grad_hidden: Tensor | None,
    grad_cell: Tensor | None,
    *_: None,
) -> tuple[Tensor | None, ...]:
    states, gates, cells, hidden, cell, weight = ctx.saved_tensors
    of_inner, of_hidden, of_cell = own.lstm_steps_backward(
        grad_output, grad_hidden, grad_cell, gates, cells, cell, weight, ctx.reverse
    )
    of_weight = None
    if ctx.needs_input_grad[1]:
        of_weight = _gradient_of_weight(of_inner, _before(states, hidden, ctx.reverse))
    return of_inner, of_weight, of_hidden, of_cell, None


def _keep_of_gru(ctx: Any, inputs: Any, output: Any) -> None:
    _, weight, _, hidden, ctx.reverse = inputs
    states, _, gates = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(gates)
    ctx.save_for_backward(states, gates, hidden, weight)


def _gru_gradients(
    ctx: Any, grad_output: Tensor | None, grad_hidden: Tensor | None, _: None
) -> tuple[Tensor | None, ...]:
    states, gates, hidden, weight = ctx.saved_tensors
    of_inner, products, of_hidden = own.gru_steps_backward(
        grad_output, grad_hidden, gates, states, hidden, weight, ctx.reverse
    )
    of_weight = of_bias = None
    if ctx.needs_input_grad[1]:
        of_weight = _gradient_of_weight(products, _before(states, hidden, ctx.reverse))
    if ctx.needs_input_grad[2]:
        of_bias = products.sum([0, 1])
    return of_inner, of_weight, of_bias, of_hidden, None


def _no_gradient(ctx: Any, *_: Any) -> None:
    raise NotImplementedError("second derivatives of recurrent layers are not compiled")


for _name, _meaning, _fake, _gradient, _keep in (
    ("lstm_steps", _lstm_steps, _like_lstm_steps, _lstm_gradients, _keep_of_lstm),
    ("lstm_steps_backward", _lstm_steps_backward, _like_lstm_steps_backward, _no_gradient, None),
    ("gru_steps", _gru_steps, _like_gru_steps, _gru_gradients, _keep_of_gru),
    ("gru_steps_backward", _gru_steps_backward, _like_gru_steps_backward, _no_gradient, None),
):
    _library.impl(_name, _meaning, "CompositeExplicitAutograd")
    _qualified = f"torch_max_backend::{_name}"
    torch.library.register_fake(_qualified, _fake, lib=_library)
    torch.library.register_autograd(_qualified, _gradient, setup_context=_keep, lib=_library)
