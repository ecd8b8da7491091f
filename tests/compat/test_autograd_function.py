"""Graphs for training are called by a shorter way than AOTAutograd's, which nobody can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.compat.test_autograd_wrappers import CALLS, _compiled, _goes_through
from torch_max_backend import max_backend

X = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
W = torch.linspace(-1, 1, 16).reshape(4, 4)


def _arguments() -> list[Tensor]:
    return [X.clone().requires_grad_(), W.clone().requires_grad_()]


def _layers(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(F.gelu(F.linear(x, w)), w)


def _loss(x: Tensor, w: Tensor) -> Tensor:
    return _layers(x, w).square().sum()


def _warm(function: Callable[..., Any]) -> Callable[..., Any]:
    """A compiled function after the calls that its shortest way takes to be known."""
    compiled = _compiled(function)
    for _ in range(CALLS):
        results = _tuple(compiled(*_arguments()))
        torch.autograd.backward([r.sum() for r in results if r.requires_grad])
    return compiled


@pytest.fixture(scope="module")
def loss() -> Callable[..., Any]:
    return _warm(_loss)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "one number": _loss,
    "a result in the memory of a product": _layers,
    "a result without a gradient": lambda x, w: ((x @ w).tanh(), (x @ w).argmax(-1)),
    "results of which some are used": lambda x, w: ((x @ w).tanh(), x.exp(), w.sin()),
    "arguments of which one needs a gradient": lambda x, w: (x @ w.detach()).cos(),
    "a turned result": lambda x, w: (x @ w).sigmoid().transpose(1, 2).contiguous(),
}


@pytest.mark.parametrize("what", FUNCTIONS)
def test_gradients_are_eagers(what: str) -> None:
    function = FUNCTIONS[what]
    compiled = _warm(function)
    ours, theirs = _arguments(), _arguments()

    def gradients(called: Callable[..., Any], arguments: list[Tensor]) -> list[Tensor | None]:
        first = _tuple(called(*arguments))[0]
        # Dense but turned, and expanded, neither of which the compiled graph has seen.
        upstream = torch.arange(1.0, 1 + first.numel()).reshape(first.shape[::-1])
        upstream = upstream.permute(tuple(reversed(range(first.dim()))))
        grads = torch.autograd.grad(
            first, arguments, upstream, retain_graph=False, allow_unused=True
        )
        again = _tuple(called(*arguments))[0]
        return [*grads, *torch.autograd.grad(again.sum(), arguments, allow_unused=True)]

    found, wanted = gradients(compiled, ours), gradients(function, theirs)
    torch.testing.assert_close(found, wanted)
    results, expected = compiled(*ours), function(*theirs)
    torch.testing.assert_close(results, expected)
    for r, e in zip(_tuple(results), _tuple(expected), strict=True):
        assert (r.requires_grad, r.stride()) == (e.requires_grad, e.stride())


def _tuple(results: Any) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_the_short_way_is_taken(loss: Callable[..., Any]) -> None:
    arguments = _arguments()
    result = loss(*arguments)
    assert result.grad_fn.name() == "CompiledFunctionBackward"
    assert not _goes_through(lambda: loss(*arguments).backward())


def test_a_kept_graph_and_a_freed_one(loss: Callable[..., Any]) -> None:
    arguments = _arguments()
    result = loss(*arguments)
    first = torch.autograd.grad(result, arguments, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(result, arguments), first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(result, arguments)


def test_gradients_of_gradients_are_refused(loss: Callable[..., Any]) -> None:
    arguments = _arguments()
    (first, _) = torch.autograd.grad(loss(*arguments), arguments, create_graph=True)
    assert first.requires_grad
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        first.sum().backward()


def test_a_write_to_what_is_saved_is_told(loss: Callable[..., Any]) -> None:
    arguments = _arguments()
    result = loss(*arguments)
    with torch.no_grad():
        arguments[1].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_hooks_of_saved_tensors_are_called(loss: Callable[..., Any]) -> None:
    arguments, seen = _arguments(), []

    def pack(x: Tensor) -> Tensor:
        seen.append("pack")
        return x * 1

    def unpack(x: Tensor) -> Tensor:
        seen.append("unpack")
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        result = loss(*arguments)
    result.backward()
    assert {"pack", "unpack"} == set(seen)
    theirs = _arguments()
    _loss(*theirs).backward()
    torch.testing.assert_close(arguments[1].grad, theirs[1].grad)


@pytest.mark.filterwarnings("ignore:Anomaly")
def test_settings_that_only_a_call_can_tell(loss: Callable[..., Any]) -> None:
    theirs = _arguments()
    _loss(*theirs).backward()
    with torch.autograd.detect_anomaly(check_nan=True):
        ours = _arguments()
        loss(*ours).backward()
        torch.testing.assert_close(ours[0].grad, theirs[0].grad)
    result = loss(*_arguments())
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(RuntimeError, match="use_deterministic_algorithms"):
            result.backward()
    finally:
        torch.use_deterministic_algorithms(False)


def test_inside_transforms_of_functions(loss: Callable[..., Any]) -> None:
    theirs = _arguments()
    _loss(*theirs).backward()
    with torch.no_grad():
        plain = [x.detach() for x in theirs]
    found = torch.func.grad(_compiled(_loss), argnums=(0, 1))(*plain)
    torch.testing.assert_close(found, (theirs[0].grad, theirs[1].grad))


@pytest.mark.parametrize("needs_gradient", [False, True])
def test_a_tensor_that_left_its_transform_runs_in_eager(needs_gradient: bool) -> None:
    left: list[Tensor] = []

    def keeps(x: Tensor) -> Tensor:
        left.append(x * 2)
        return x.sum()

    torch.func.grad(keeps)(torch.ones(4))
    compiled = torch.compile(
        lambda x, w: (x * w).sum(), backend=max_backend, options={"fallback": "eager"}
    )
    weight = torch.ones(4, requires_grad=needs_gradient)
    for _ in range(3):
        assert compiled(left[0], weight).item() == 8
    assert compiled(torch.ones(4), weight).item() == 4


def test_compiled_autograd(loss: Callable[..., Any]) -> None:
    ours, theirs = _arguments(), _arguments()
    result = loss(*ours)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        result.backward()
    _loss(*theirs).backward()
    torch.testing.assert_close(ours[0].grad, theirs[0].grad)
    torch.testing.assert_close(ours[1].grad, theirs[1].grad)
