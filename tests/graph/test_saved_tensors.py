"""What a forward graph keeps for its backward graph: arguments and results, not copies of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.tracing import traced
from torch_max_backend import max_backend

OPTIONS = {"engine": "steps", "fallback": "error", "cache": False}


def _outputs(function: object, *arguments: Tensor) -> list[tuple[str, int, object]]:
    """Kind and index of each result, of which the first alone is the user's, and the view of an
    argument that it is."""
    from torch_max_backend.graph.signature import analyse

    found = analyse(traced(function, *arguments), exact=1).signature
    return [(o.kind, o.index, o.views) for o in found.outputs]


def test_views_that_change_nothing_are_what_they_show() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = x @ w
        return y, y.detach(), w.t().t(), y.view(y.shape).detach()

    found = _outputs(function, torch.ones(2, 3), torch.ones(3, 4))
    assert found[0] == found[1] == found[3] == ("value", 0, ())
    assert found[2] == ("input", 1, ())


def test_views_of_arguments_are_taken_by_the_runtime() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        turned = x.permute(2, 0, 1).transpose(0, -1)
        return x + 1, turned, w.t(), w[:2].t(), w[1:, -2:], w[::2], x[0, 1].expand(5, 4)

    found = _outputs(function, torch.ones(2, 3, 4), torch.ones(3, 4))
    assert found[1] == ("input", 0, (("permute", (2, 0, 1)), ("transpose", (0, -1))))
    assert found[2] == ("input", 1, (("permute", (1, 0)),))
    assert found[3] == ("input", 1, (("narrow", (0, 0, 2)), ("permute", (1, 0))))
    assert found[4] == ("input", 1, (("narrow", (0, 1, 2)), ("narrow", (1, 2, 2))))
    assert found[5][0] == "value"  # a step is a copy
    assert found[6] == ("input", 0, (("select", (0, 0)), ("select", (0, 1)), ("expand", (5, 4))))


def test_what_the_user_gets_is_memory_of_its_own() -> None:
    from torch_max_backend.graph.signature import analyse

    found = analyse(traced(lambda x: (x + 1, x.t()), torch.ones(2, 3)), exact=2).signature
    assert [o.kind for o in found.outputs] == ["value", "value"]


def test_what_is_written_to_is_kept_as_it_was() -> None:
    def function(x: Tensor) -> tuple[Tensor, ...]:
        kept = x.t() * 1
        x.add_(1)
        return kept, x.t()

    found = _outputs(function, torch.ones(2, 3))
    assert [kind for kind, _, _ in found] == ["value", "value"]


def _trained(function: object) -> list[Tensor]:
    torch.manual_seed(0)
    x, w, v = (torch.randn(n, n).requires_grad_() for n in (8, 8, 8))
    found = []
    for _ in range(12):  # the last calls are written out
        y = function(x, w, v)
        found = [y.detach(), *torch.autograd.grad(y.sum(), (x, w, v))]
    return found


def test_gradients_are_eagers() -> None:
    def function(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        return torch.exp(x @ w / 8) @ v.t()

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=max_backend, options=OPTIONS)
    torch.testing.assert_close(_trained(compiled), _trained(function))


@pytest.mark.parametrize("written", ["argument", "result"])
def test_writes_before_the_backward_pass_are_noticed(written: str) -> None:
    """As in eager PyTorch: a gradient by other numbers would be wrong."""
    torch._dynamo.reset()
    options = {**OPTIONS, "min_ops": 1}
    compiled = torch.compile(lambda x, w: (x @ w).exp(), backend=max_backend, options=options)
    x, w = torch.randn(4, 4).requires_grad_(), torch.randn(4, 4).requires_grad_()
    y = compiled(x, w)
    with torch.no_grad():
        (w if written == "argument" else y).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def _argument(x: Tensor, w: Tensor) -> Tensor:
    y = x.cos() * w
    x.add_(1)
    return y


def _part(x: Tensor, w: Tensor) -> Tensor:
    y = x.cos() * w
    x[1:].mul_(2)
    return y


def _twice(x: Tensor, w: Tensor) -> Tensor:
    y = x.cos() * w
    x.copy_(w.detach() * 3)
    y = y + x.sin() * w
    x.neg_()
    return y


def _directly(x: Tensor, w: Tensor) -> Tensor:
    y = x.clone() * w
    x.zero_()
    return y


def _recomputed(x: Tensor, w: Tensor) -> Tensor:
    y = checkpoint(lambda a, b: (a.cos() + 1) * b, x.clone(), w, use_reentrant=False)
    x.add_(1)
    return y


@pytest.mark.parametrize("budget", [1.0, 0.0])
@pytest.mark.parametrize("function", [_argument, _part, _twice, _directly, _recomputed])
def test_gradients_are_of_what_an_argument_held(
    function: Callable[[Tensor, Tensor], Tensor], budget: float
) -> None:
    torch._dynamo.reset()
    options = {**OPTIONS, "activation_memory_budget": budget}
    compiled = torch.compile(function, backend=max_backend, options=options)
    for _ in range(3):
        x, w = torch.randn(4, 4), torch.randn(4, 4)
        results = []
        for call in (function, compiled):
            written, wanted = x.clone(), w.clone().requires_grad_()
            y = call(written, wanted)
            results.append([y.detach(), written, *torch.autograd.grad(y.sum(), wanted)])
        torch.testing.assert_close(results[1], results[0])


class _Scaled(torch.autograd.Function):
    """Forward writes to the largest value that was seen, and so does backward."""

    @staticmethod
    def forward(ctx: Any, w: Tensor, largest: Tensor) -> Tensor:
        ctx.largest = largest
        y = w * largest.cos()
        largest.add_(1)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        ctx.largest.copy_(ctx.largest * 2 + grad.abs().max())
        return grad * 3, None


def test_what_backward_writes_to_is_the_argument() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda w, largest: _Scaled.apply(w, largest), backend=max_backend, options=OPTIONS
    )
    for _ in range(3):
        w, results = torch.randn(4, 4), []
        for call in (_Scaled.apply, compiled):
            wanted, largest = w.clone().requires_grad_(), torch.zeros(())
            y = call(wanted, largest)
            between = largest.clone()
            y.sum().backward()
            results.append([y.detach(), wanted.grad, between, largest])
        torch.testing.assert_close(results[1], results[0])


def test_a_spectral_norm_trains_as_in_eager() -> None:
    """Its buffers are written in forward, and what they held is cheap to compute with again."""
    norms = []
    for backend in (None, max_backend):
        torch.manual_seed(0)
        model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.ReLU())
        torch._dynamo.reset()
        call = torch.compile(model, backend=backend, options=OPTIONS) if backend else model
        for _ in range(3):
            call(torch.randn(5, 4)).square().sum().backward()
        norms.append([*(p.grad for p in model.parameters()), *model.buffers()])
    torch.testing.assert_close(norms[1], norms[0])
