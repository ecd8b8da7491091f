"""Gradients of convolutions, as convolutions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_max_backend.graph.arguments import per_dimension

aten = torch.ops.aten


def convolution_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a convolution as convolutions (``aten::convolution_backward``).

    Args:
        grad_output: ``[batch, channels out, *spatial]``.
        input: ``[batch, channels in, *spatial]``.
        weight: ``[channels out, channels in / groups, *kernel]``; the first two swapped where
            ``transposed``.
        output_mask: Which of the three are wanted.

    Returns:
        The gradients of input, weight and bias; ``None`` for those not wanted.
    """
    spatial = input.dim() - 2
    stride, padding, dilation = (per_dimension(v, spatial) for v in (stride, padding, dilation))
    settings = (stride, padding, dilation)
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        # Positions that no window reached at the end: as many as may be, then cut to the size.
        beyond = [0] * spatial if transposed else [s - 1 for s in stride]
        of_input = aten.convolution(
            grad_output, weight, None, *settings, not transposed, beyond, groups
        )
        of_input = _cut(of_input, input.shape[2:])
    if output_mask[1]:
        # A transposed convolution is the gradient of a plain one: input and output swap places.
        above, below = (input, grad_output) if transposed else (grad_output, input)
        of_weight = _of_weight(above, below, weight, *settings, groups)
    if output_mask[2]:
        of_bias = grad_output.sum([0, *range(2, grad_output.dim())])
    return of_input, of_weight, of_bias


def _of_weight(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """Each weight meets the input at steps of ``stride``: a convolution of the input by the
    gradient whose stride and dilation are swapped, batch in the place of channels."""
    batch = input.shape[0]
    per_in = input.shape[1] // groups
    rows = input.reshape(batch, groups, per_in, *input.shape[2:]).transpose(0, 2)
    rows = rows.reshape(per_in, groups * batch, *input.shape[2:])
    kernels = grad.transpose(0, 1)
    result = aten.convolution(
        rows, kernels, None, dilation, padding, stride, False, [0] * len(stride), groups
    )
    return _cut(result, weight.shape[2:]).transpose(0, 1).reshape(weight.shape)


def _cut(value: Tensor, sizes: Sequence[int]) -> Tensor:
    for axis, size in enumerate(sizes, start=2):
        value = value.narrow(axis, 0, size)
    return value
