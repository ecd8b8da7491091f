"""What AOTAutograd wraps around graphs is left out where it does nothing, and nowhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor

from torch_max_backend import IndexOutOfBoundsError, max_backend

OPTIONS = {"min_ops": 1, "fallback": "error"}
# Calls after which the shortest way is known.
CALLS = 14


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=max_backend, options=OPTIONS, dynamic=False)


def _files(call: Callable[[], Any]) -> list[str]:
    """The files of the Python functions that a call goes through."""
    files: list[str] = []

    def see(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            files.append(frame.f_code.co_filename)

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def _goes_through(call: Callable[[], Any]) -> bool:
    return any("runtime_wrappers" in file for file in _files(call))


def _shared(results: Any, x: Tensor) -> list[bool]:
    """Which results are in the memory of a tensor."""
    storages = [r.untyped_storage().data_ptr() for r in results]
    return [s == x.untyped_storage().data_ptr() for s in storages]


def _written(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 2


ALIASES: dict[str, Callable[..., Any]] = {
    "writes to its argument": _written,
    "returns a view of its argument": lambda x: (x * 2, x[1:]),
    "returns its argument": lambda x: (x * 2, x),
    "returns views of one result": lambda x: (x * 2).unbind(0),
}


def test_a_plain_graph_is_called_at_once() -> None:
    compiled = _compiled(lambda x, y: (x * y).sum(1))
    x, y = torch.rand(3, 4), torch.rand(3, 4)
    with torch.no_grad():
        for _ in range(CALLS):
            torch.testing.assert_close(compiled(x, y), (x * y).sum(1))
        assert not _goes_through(lambda: compiled(x, y))


@pytest.mark.parametrize("what", ALIASES)
def test_what_is_left_to_do_is_done(what: str) -> None:
    function = ALIASES[what]
    compiled = _compiled(function)
    ours = torch.rand(3, 4)
    theirs = ours.clone()
    for _ in range(CALLS):
        version = ours._version
        found, wanted = compiled(ours), function(theirs)
        torch.testing.assert_close((found, ours), (wanted, theirs))
        changed = ours._version > version
        assert changed == (what == "writes to its argument")
        found, wanted = (r if isinstance(r, tuple) else (r,) for r in (found, wanted))
        assert _shared(found, ours) == _shared(wanted, theirs)
    # Dynamo itself returns arguments, and without gradients views of results are results.
    if "of its argument" in what or "writes" in what:
        assert _goes_through(lambda: compiled(ours))


def test_gradients_are_asked_for_and_not() -> None:
    compiled = _compiled(lambda x: x.sin() * 2)
    x = torch.rand(3, 4, requires_grad=True)
    for _ in range(CALLS):
        result = compiled(x)
        (found,) = torch.autograd.grad(result.sum(), x)
        torch.testing.assert_close(found, 2 * x.detach().cos())
        with torch.no_grad():
            assert not compiled(x).requires_grad
        assert not compiled(x.detach()).requires_grad
        assert torch.is_grad_enabled()
    with torch.no_grad():
        compiled(x)
        assert not torch.is_grad_enabled()


def test_autocast_is_left_as_it_is() -> None:
    compiled = _compiled(lambda x, y: (x @ y).relu())
    x, y = torch.rand(8, 8), torch.rand(8, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for _ in range(CALLS):
            assert compiled(x, y).dtype == torch.bfloat16
            assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("by_torch", [False, True])
def test_what_autocast_does_not_see(by_torch: bool, gradients: bool) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return (x @ y).relu()

    torch._dynamo.reset()
    options = {"min_ops": 100 if by_torch else 1}
    compiled = torch.compile(function, backend=max_backend, options=options)
    x, y = torch.rand(8, 8, requires_grad=gradients), torch.rand(8, 8)
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(CALLS):
            result = compiled(x, y)
            torch.testing.assert_close(result, function(x, y))
            if gradients:
                (found,) = torch.autograd.grad(result.sum(), x)
                (wanted,) = torch.autograd.grad(function(x, y).sum(), x)
                torch.testing.assert_close(found, wanted)
        assert not _goes_through(lambda: compiled(x, y))


@pytest.mark.parametrize("gradients", [False, True])
def test_sizes_that_vary(gradients: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin() * 2, backend=max_backend, options=OPTIONS)
    for size in [3, *range(4, 4 + CALLS)]:
        x = torch.rand(size, 4, requires_grad=gradients)
        result = compiled(x)
        torch.testing.assert_close(result, x.sin() * 2)
        if gradients:
            (found,) = torch.autograd.grad(result.sum(), x)
            torch.testing.assert_close(found, 2 * x.detach().cos())
    # What tells Dynamo of it, should the next graph be compiled for the result.
    assert result._dynamo_propagated_dynamic_indices == {0}
    # One call marks the result so, one what is saved for the gradient.
    files = _files(lambda: compiled(x))
    assert sum("runtime_wrappers" in file for file in files) == 1 + gradients


def test_errors_are_those_of_the_long_way() -> None:
    compiled = _compiled(lambda x, i: x[i] * 2)
    x, i = torch.rand(5, 3), torch.tensor([1, 4])
    with torch.no_grad():
        for _ in range(CALLS):
            compiled(x, i)
        with pytest.raises(IndexOutOfBoundsError):
            compiled(x, torch.tensor([1, 5]))
        torch.testing.assert_close(compiled(x, i), x[i] * 2)
