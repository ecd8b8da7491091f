"""One function as a graph of steps beside eager PyTorch: values, and gradients where there are
some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_max_backend import max_backend

# Otherwise eager PyTorch runs graphs of one operator.
OPTIONS = {"engine": "steps", "fallback": "error", "cache": False, "min_ops": 1}


def assert_as_eager(
    function: Callable[..., Tensor], *arguments: Tensor, **tolerance: float
) -> None:
    """Asserts that the compiled function gives eager's values and gradients.

    Args:
        function: Of some tensors one tensor.
        arguments: Those of real numbers require gradients.
        tolerance: `rtol` and `atol`; by default those of the dtype.
    """
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=max_backend, options=OPTIONS)
    torch.testing.assert_close(
        _values_and_gradients(compiled, arguments),
        _values_and_gradients(function, arguments),
        **tolerance,
        equal_nan=True,
    )


def _values_and_gradients(
    function: Callable[..., Tensor], arguments: tuple[Tensor, ...]
) -> list[Any]:
    given = [a.clone().requires_grad_(a.is_floating_point()) for a in arguments]
    result = function(*given)
    wanted = [a for a in given if a.requires_grad]
    if not result.requires_grad:
        return [result.detach()]
    weights = torch.linspace(-1, 1, max(result.numel(), 1), dtype=torch.float32)
    weights = weights[: result.numel()].reshape(result.shape).to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, wanted, weights)]
