"""What an architecture returns compiled, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.matrix.outputs import errors, in_float64, stirred, tensors
from benchmarks.sweep.catalog import model_of


def compiled(model: torch.nn.Module) -> Callable[..., Any]:
    """The model compiled for steps. What has no step is torch's; what a cache answers would not be
    counted."""
    from torch_max_backend import max_backend

    options = {"engine": "steps", "fallback": "eager", "cache": False}
    return torch.compile(model, backend=max_backend, options=options, dynamic=False)


def traced(model: torch.nn.Module) -> Callable[..., Any]:
    """The model traced by torch.compile and run by torch: some compute something else while they
    are traced."""
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager", dynamic=False)


def inference(name: str) -> Callable[[], dict[str, Any]]:
    """An architecture that has been called in eager PyTorch.

    Returns:
        What compiles it, calls it twice and tells ``right``, ``wrong`` (what is), ``ties`` (what
        differs in its order only) and ``torch`` (what differs from eager in the same way with
        ``aot_eager``).
    """
    model, inputs = model_of(name)
    stirred(model)

    def call(function: Callable[..., Any]) -> list[torch.Tensor]:
        torch.manual_seed(1)
        with torch.no_grad():
            return tensors(function(**inputs))

    expected = call(model)

    def compare() -> dict[str, Any]:
        function = compiled(model)
        ours = [call(function) for _ in range(2)][1]
        again = errors(ours, expected, None)
        if again.wrong:
            again = errors(ours, expected, in_float64(model, inputs))
        if again.wrong and not errors(_sorted(ours), _sorted(expected), None).wrong:
            return {"right": True, "wrong": again.wrong, "ties": again.wrong}
        if again.wrong and not errors(ours, call(traced(model)), None).wrong:
            return {"right": True, "wrong": again.wrong, "torch": again.wrong}
        return {"right": not again.wrong, "wrong": again.wrong}

    return compare


def _sorted(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Values without their order, which a choice of the best decides where several nearly tie."""
    return [v.flatten().sort().values for v in values if v.is_floating_point()]
