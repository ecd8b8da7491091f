"""What an architecture returns compiled, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.outputs import errors, floats_as, in_dtype, stirred, tensors
from benchmarks.sweep.catalog import model_of


def compiled(model: nn.Module, dynamic: bool | None = False) -> Callable[..., Any]:
    """The model compiled for steps. What has no step is torch's; what a cache answers would not be
    counted."""
    from torch_max_backend import max_backend

    options = {"engine": "steps", "fallback": "eager", "cache": False}
    return torch.compile(model, backend=max_backend, options=options, dynamic=dynamic)


def traced(model: nn.Module, dynamic: bool | None = False) -> Callable[..., Any]:
    """The model traced by torch.compile and run by torch: some compute something else while they
    are traced."""
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager", dynamic=dynamic)


def returned(function: Callable[..., Any], inputs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call returns, after the same seed."""
    torch.manual_seed(1)
    with torch.no_grad():
        return tensors(function(**inputs))


def inference(name: str) -> Callable[[], dict[str, Any]]:
    """An architecture that has been called in eager PyTorch.

    Returns:
        What compiles it, calls it twice and tells ``right``, ``wrong`` (what is), ``ties`` (what
        differs in its order only) and ``torch`` (what differs from eager in the same way with
        ``aot_eager``).
    """
    model, inputs = model_of(name)
    return _beside_eager(stirred(model), inputs)


def bfloat16(name: str) -> Callable[[], dict[str, Any]]:
    """The same in bfloat16, weights and inputs."""
    model, inputs = model_of(name)
    return _beside_eager(stirred(model).bfloat16(), floats_as(torch.bfloat16, inputs))


def _beside_eager(model: nn.Module, inputs: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    expected = returned(model, inputs)

    def compare() -> dict[str, Any]:
        function = compiled(model)
        ours = [returned(function, inputs) for _ in range(2)][1]
        return verdict(ours, expected, model, inputs)

    return compare


def verdict(
    ours: list[Tensor], expected: list[Tensor], model: nn.Module, inputs: Mapping[str, Any]
) -> dict[str, Any]:
    """What ``inference`` tells of what a model returned, compiled and in eager PyTorch."""
    again = errors(ours, expected, None)
    if again.wrong:
        again = errors(ours, expected, _truth(model, inputs))
    if again.wrong and not errors(_sorted(ours), _sorted(expected), None).wrong:
        return {"right": True, "wrong": again.wrong, "ties": again.wrong}
    if again.wrong and not errors(ours, returned(traced(model), inputs), None).wrong:
        return {"right": True, "wrong": again.wrong, "torch": again.wrong}
    return {"right": not again.wrong, "wrong": again.wrong}


def _truth(model: nn.Module, inputs: Mapping[str, Any]) -> list[Tensor] | None:
    """What the model returns in float64, or else, if it is of 16 bits, in float32."""
    found = in_dtype(model, inputs)
    rounded = any(p.dtype == torch.bfloat16 for p in model.parameters())
    return in_dtype(model, inputs, torch.float32) if found is None and rounded else found


def _sorted(values: list[Tensor]) -> list[Tensor]:
    """Values without their order, which a choice of the best decides where several nearly tie."""
    return [v.flatten().sort().values for v in values if v.is_floating_point()]
