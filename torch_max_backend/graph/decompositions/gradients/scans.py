"""Gradients of running products."""

from __future__ import annotations

import torch
from torch import Tensor

from torch_max_backend.compat.operators import composite_kernel

aten = torch.ops.aten

_library = torch.library.Library("torch_max_backend", "FRAGMENT")
_library.define("cumprod_backward(Tensor grad, Tensor input, int dim, Tensor output) -> Tensor")

# torch's formula: fifteen operators, since it is not known while tracing that no number is 0.
_formula = composite_kernel(aten.cumprod_backward.default)


def _like_input(grad: Tensor, input: Tensor, dim: int, output: Tensor) -> Tensor:
    return input.new_empty(input.shape)


_library.impl("cumprod_backward", _formula, "CompositeExplicitAutograd")
torch.library.register_fake("torch_max_backend::cumprod_backward", _like_input, lib=_library)


def cumprod_backward(grad: Tensor, input: Tensor, dim: int, output: Tensor) -> Tensor:
    """cumprod_backward(Tensor grad, Tensor input, int dim, Tensor output) -> Tensor

    The gradient of ``input``, all of one shape. An operator of this package's own where it has a
    kernel and nobody differentiates it, which it does not know; else torch's formula."""
    given = grad, input, output
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in given)
    has_kernel = input.device.type == "cpu" and input.is_floating_point() and input.dim() > 0
    if differentiated or not has_kernel or len({t.dtype for t in given}) > 1:
        return _formula(grad, input, dim, output)
    return torch.ops.torch_max_backend.cumprod_backward(grad, input, dim, output)
