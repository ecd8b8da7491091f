"""What holds whatever the graph is: aliases, arguments written in place, bad numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_max_backend import max_backend
from torch_max_backend.errors import ExecutionError, IndexOutOfBoundsError


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(
        function,
        backend=max_backend,
        options={"engine": "steps", "fallback": "error", "cache": False},
    )


def _same_as_eager(function: Callable[..., Any], *arguments: torch.Tensor) -> None:
    """Three calls: the third is one that is written out."""
    theirs = [t.clone() for t in arguments]
    expected = function(*theirs)
    compiled = _compiled(function)
    for _ in range(3):
        ours = [t.clone() for t in arguments]
        found = compiled(*ours)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


def _swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kept = x.clone()
    x.copy_(y)
    y.copy_(kept)
    return x + y


def _shift(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[1:] = x[:-1].clone()
    return x.sum() + y


def _turn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.copy_(x.t().clone())
    y.mul_(x)
    return x


def _views_of_written(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    x.add_(1)
    y.mul_(x)
    return x, y, x.t(), y


@pytest.mark.parametrize("function", [_swap, _shift, _turn, _views_of_written])
def test_arguments_are_read_before_they_are_written(function: Callable[..., Any]) -> None:
    _same_as_eager(function, torch.arange(9.0).reshape(3, 3), torch.ones(3, 3) * 2)


def test_results_may_be_arguments_and_each_other() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x + 1
        return x, x.t(), x.view(-1), y, y, y.view(-1), y.t()

    _same_as_eager(function, torch.arange(6.0).reshape(2, 3))


@pytest.mark.parametrize(
    ("function", "at"),
    [
        (lambda x, i: x[i], 6),
        (lambda x, i: x.gather(0, i), 6),
        (lambda x, i: x.index_select(0, i), 6),
        (lambda x, i: x.scatter(0, i, 1.0), 6),
        (lambda x, i: x.index_put((i,), torch.ones(1)), 6),
        (lambda x, i: torch.take(x, i), -7),
        (lambda x, i: torch.nn.functional.embedding(i, x.reshape(3, 2)), 3),
    ],
    ids=["getitem", "gather", "index_select", "scatter", "index_put", "take", "embedding"],
)
def test_a_bad_index_raises(function: Callable[..., Any], at: int) -> None:
    compiled = _compiled(function)
    for _ in range(3):
        with pytest.raises(IndexOutOfBoundsError):
            compiled(torch.arange(6.0), torch.tensor([at]))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a // b,
        lambda a, b: a % b,
        torch.fmod,
        lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    ],
    ids=["floor", "remainder", "fmod", "trunc"],
)
def test_integers_divided(function: Callable[..., Any]) -> None:
    least = torch.iinfo(torch.int64).min
    numbers = torch.tensor([7, -7, 7, -7, 0, least])
    _same_as_eager(function, numbers, torch.tensor([3, 3, -3, -3, 5, 1]))
    # Eager's process ends here for some of these: the quotient is no int64.
    found = _compiled(function)(numbers, torch.full((6,), -1)).tolist()
    assert found in ([-7, 7, -7, 7, 0, least], [0] * 6)
    with pytest.raises(ExecutionError, match="ZeroDivisionError"):
        _compiled(function)(numbers, torch.tensor([1, 2, 0, 1, 1, 1]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers_wrap(dtype: torch.dtype) -> None:
    most = torch.iinfo(dtype).max
    x = torch.tensor([most, most // 2 + 1, 3], dtype=dtype)
    _same_as_eager(lambda a: (a * a, a + a, -a, a.sum(dtype=a.dtype), a.prod(dtype=a.dtype)), x)


def test_nan_and_infinity() -> None:
    inf = float("inf")
    x = torch.tensor([float("nan"), inf, -inf, 0.0, -0.0, 1.0])
    _same_as_eager(
        lambda a: (
            a.amax(0), a.amin(0), a.argmax(), a.clamp(-1, 1), a.relu(), a.sign(), a.sort()[0],
            torch.maximum(a, a.flip(0)), a == a, torch.nan_to_num(a), torch.where(a > 0, a, 1.0),
        ),
        x,
    )  # fmt: skip


@pytest.mark.parametrize("flush", [False, True])
def test_subnormals_are_torch_s(flush: bool) -> None:
    x = torch.tensor([1e-40, 1e-45, 1e-38, -1e-40])
    if not torch.set_flush_denormal(flush):
        pytest.skip("this processor cannot")
    try:
        _same_as_eager(lambda a: (a * 0.5, a == 0, a + a, a > 0), x)
    finally:
        torch.set_flush_denormal(False)


def test_strides_of_all_kinds() -> None:
    memory = torch.arange(10_000.0)
    compiled = _compiled(lambda a: (a + 1, a.sum(0), a.t() @ a, a.contiguous()))
    for strides in ((1000, 7), (0, 1), (1, 0), (0, 0), (1, 5), (6, 1)):
        x = memory.as_strided((5, 6), strides)
        expected = (x + 1, x.sum(0), x.t() @ x, x.contiguous())
        torch.testing.assert_close(compiled(x), expected)


def test_nothing_and_numbers() -> None:
    _same_as_eager(
        lambda a: (a.sum(0), a.sum(1), a @ a.t(), a.t() @ a, a.mean(0), torch.cat([a, a])),
        torch.zeros(0, 3),
    )
    _same_as_eager(
        lambda a, b: (a + b, a.sum(), torch.stack([a, b]), a.expand(3) + b),
        torch.tensor(2.0),
        torch.tensor(3.0),
    )
