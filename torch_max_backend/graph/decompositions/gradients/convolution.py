"""Gradients of convolutions: the input's is a convolution, the weights' a kernel's or one too."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torch_max_backend.graph.arguments import per_dimension

aten = torch.ops.aten

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define(
    "convolution_weight_gradient(Tensor grad_output, Tensor input, SymInt[] weight_size, "
    "SymInt[] stride, SymInt[] padding, SymInt[] dilation, SymInt groups) -> Tensor"
)


def _weight_gradient(
    grad_output: Tensor,
    input: Tensor,
    weight_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """What the operator means, in ATen: eager execution of a graph that has it."""
    weight = input.new_empty(weight_size)
    settings = (None, stride, padding, dilation, False, [0] * len(stride), groups)
    wanted = [False, True, False]
    return aten.convolution_backward(grad_output, input, weight, *settings, wanted)[1]


def _like_weight(
    grad_output: Tensor, input: Tensor, weight_size: Sequence[int], *_: object
) -> Tensor:
    return input.new_empty(weight_size)


_library.impl("convolution_weight_gradient", _weight_gradient, "CompositeExplicitAutograd")
torch.library.register_fake(
    "torch_max_backend::convolution_weight_gradient", _like_weight, lib=_library
)


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
    """Gradients of a convolution (``aten::convolution_backward``).

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
        beyond = [0] * spatial if transposed else _beyond(grad_output, input, weight, *settings)
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


def _beyond(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> list[int]:
    """Positions at the end that no window reached; as many as may be where sizes are symbols, of
    which some are cut off afterwards."""
    found = []
    for i, (s, p, d) in enumerate(zip(stride, padding, dilation, strict=True), start=2):
        sizes = (grad.shape[i], input.shape[i], weight.shape[i])
        if all(isinstance(n, int) for n in sizes):
            found.append(sizes[1] - ((sizes[0] - 1) * s - 2 * p + d * (sizes[2] - 1) + 1))
        else:
            found.append(s - 1)
    return found


def _of_weight(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
) -> Tensor:
    """By a kernel on CPU. Elsewhere each weight meets the input at steps of ``stride``: a
    convolution of the input by the gradient whose stride and dilation are swapped, batch in the
    place of channels."""
    floats = (torch.float32, torch.float64)
    fixed = all(isinstance(v, int) for v in (*stride, *padding, *dilation, groups))
    if input.device.type == "cpu" and input.dtype in floats and fixed:
        sizes, settings = list(weight.shape), [stride, padding, dilation]
        if input.dim() == 5:
            outputs, per_in, deep, *kernel = sizes
            input = _slices(input, deep, grad.shape[2], *(s[0] for s in settings))
            grad = grad.transpose(1, 2).flatten(0, 1)
            sizes, settings = [outputs, per_in * deep, *kernel], [s[1:] for s in settings]
        own = torch.ops.torch_max_backend.convolution_weight_gradient
        return own(grad, input, sizes, *settings, groups).reshape(weight.shape)
    batch = input.shape[0]
    per_in = input.shape[1] // groups
    rows = input.reshape(batch, groups, per_in, *input.shape[2:]).transpose(0, 2)
    rows = rows.reshape(per_in, groups * batch, *input.shape[2:])
    kernels = grad.transpose(0, 1)
    result = aten.convolution(
        rows, kernels, None, dilation, padding, stride, False, [0] * len(stride), groups
    )
    return _cut(result, weight.shape[2:]).transpose(0, 1).reshape(weight.shape)


def _slices(
    volumes: Tensor, taps: int, count: int, stride: int, padding: int, dilation: int
) -> Tensor:
    """Images ``[batch * count, channels * taps, height, width]``: the slices that each of ``count``
    windows along the depth meets, so that a convolution of volumes is one of images."""
    padded = torch.nn.functional.pad(volumes, (0, 0, 0, 0, padding, padding))
    reach = (count - 1) * stride + 1
    met = [padded[:, :, t * dilation : t * dilation + reach : stride] for t in range(taps)]
    batch, channels, _, height, width = volumes.shape
    images = torch.stack([m.transpose(1, 2) for m in met], 3)
    return images.reshape(batch * count, channels * taps, height, width)


def _cut(value: Tensor, sizes: Sequence[int]) -> Tensor:
    for axis, size in enumerate(sizes, start=2):
        value = value.narrow(axis, 0, size)
    return value
