"""Changes of arguments that are written where they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.engines.steps.plans import kinds, same_as_eager, traced
from torch_max_backend import max_backend
from torch_max_backend.errors import IndexOutOfBoundsError

aten = torch.ops.aten
_OPTIONS = {"engine": "steps", "fallback": "error", "cache": False}
Function = Callable[..., list[torch.Tensor]]


def _rows(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.index_put(x, [None, at], y)
    result = new * 2
    x.copy_(new)
    return [result]


def _chain(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    first = aten.index_put(x, [None, at], y)
    second = aten.index_put(first, [None, at + 1], y + 1)
    third = aten.slice_scatter(second, y * 3, 1, 0, 2)
    result = third.sum(1)
    x.copy_(third)
    return [result]


def _slice(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, y * 2, 1, 1, 3)
    result = new.sum(2)
    x.copy_(new)
    return [result]


def _select(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.select_scatter(x, y[:, 1], 1, 4)
    result = new[:, 3:] + 1
    x.copy_(new)
    return [result]


def _elements(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    index = at.reshape(1, 2, 1).expand(2, 2, 3)
    new = x.scatter_add(1, index, y)
    x.copy_(new)
    return [new + 1]


def _old_value_too(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    # Read in the graph after the change, which has to wait.
    new = aten.index_put(x, [None, at], y)
    result = [new.sum(2), x.sum(2), x[:, 1:] - x[:, :-1]]
    x.copy_(new)
    return result


def _part_of_itself(x: torch.Tensor, at: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, x[:, 1:3] * 2 + y, 1, 1, 3)
    x.copy_(new)
    return [y + 1]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    "function",
    [_rows, _chain, _slice, _select, _elements, _old_value_too, _part_of_itself],
)
def test_only_the_part_is_written(function: Function, dynamic: bool) -> None:
    x = torch.arange(36.0).reshape(2, 6, 3)
    y = -torch.arange(12.0).reshape(2, 2, 3)
    at = torch.tensor([3, 0])
    same_as_eager(function, [x.transpose(0, 1).contiguous().transpose(0, 1), at, y], dynamic)
    plan = same_as_eager(function, [x, at, y], dynamic)
    sizes = [
        p.shape
        for step in plan.steps
        for p in step.outputs
        if plan.memory[p.memory].kind == "input" and not hasattr(step, "symbol")
    ]
    if not dynamic:
        assert all(torch.Size(s).numel() < 36 for s in sizes), "all of the argument is written"
        assert not any(m.kind == "temporary" and m.size == 36 for m in plan.memory)


def test_a_16_bit_cache_is_not_widened() -> None:
    x = torch.arange(36, dtype=torch.bfloat16).reshape(2, 6, 3)
    y = -torch.arange(12, dtype=torch.bfloat16).reshape(2, 2, 3)
    plan = same_as_eager(_rows, [x, torch.tensor([3, 0]), y])
    assert not any(m.kind == "temporary" and m.size == 36 for m in plan.memory)


def _shifted(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, x[:-1] * 2, 0, 1)
    x.copy_(new)
    return [y + 1]


def _crossed(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new_x = aten.slice_scatter(x, y[1:3], 0, 1, 3)
    new_y = aten.slice_scatter(y, x[1:3] + 1, 0, 0, 2)
    x.copy_(new_x)
    y.copy_(new_y)
    return []


def _needed_by_the_old_value(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, y[:2], 0, 0, 2)
    result = new.sum() + x
    x.copy_(new)
    return [result]


def _restored(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(y * 0, x[1:3], 0, 1, 3)
    x.copy_(new)
    return []


def _returned_as_well(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, y[:2], 0, 0, 2)
    results = [new.clone(), new[1:].clone(), new.t().clone()]
    x.copy_(new)
    return results


def _two_arguments(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, y[:2] + 1, 0, 0, 2)
    x.copy_(new)
    y.copy_(new)
    return []


def _two_parts_of_each_other(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = torch.cat([x[2:] + 1, x[2:3], x[:1] * 2])
    x.copy_(new)
    return []


def _both_parts_change(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    first = aten.slice_scatter(x, x[:1] + y[:1], 0, 0, 1)
    new = aten.slice_scatter(first, first[:1] * x[3:], 0, 3, 4)
    x.copy_(new)
    return [new * y]


def _scattered_from_itself(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.index_put(x, [torch.tensor([2, 0])], x[1:3])
    x.copy_(new)
    return []


def _nothing(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, y[:0], 0, 2, 2)
    x.copy_(new)
    return [x + 1]


def _all(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
    new = aten.slice_scatter(x, y * 2, 0, 0, 4)
    result = new + 1
    x.copy_(new)
    return [result]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    "function",
    [
        _shifted, _crossed, _needed_by_the_old_value, _restored, _returned_as_well,
        _two_arguments, _two_parts_of_each_other, _both_parts_change, _scattered_from_itself,
        _nothing, _all,
    ],
)  # fmt: skip
def test_old_values_are_what_they_were(function: Function, dynamic: bool) -> None:
    x, y = torch.arange(12.0).reshape(4, 3), torch.arange(12.0).reshape(4, 3) * 10
    for argument in (x, x.t().contiguous().t(), torch.arange(24.0).reshape(4, 6)[:, ::2]):
        same_as_eager(function, [argument, y], dynamic)


def test_a_bad_index_changes_nothing() -> None:
    x, y = torch.arange(36.0).reshape(2, 6, 3), torch.zeros(2, 2, 3)
    _, executable = traced(_rows, [x, torch.tensor([3, 0]), y])
    for bad in (6, -7):
        with pytest.raises(IndexOutOfBoundsError):
            executable([x, torch.tensor([3, bad]), y])
        assert torch.equal(x, torch.arange(36.0).reshape(2, 6, 3))


def test_one_tensor_as_two_arguments() -> None:
    """What is written is what is read elsewhere, through the same tensor or a view of it."""

    def function(x: torch.Tensor, y: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        x.index_copy_(0, at, y[:2] + 1)
        return y * 2

    at = torch.tensor([1, 3])
    for make in (lambda x: x, lambda x: x[:], lambda x: x.flip(0), lambda x: x.view(4, 3)):
        # Dynamo does not tell a view from a tensor of its own, whatever the backend.
        torch._dynamo.reset()
        compiled = torch.compile(function, backend=max_backend, options=_OPTIONS)
        theirs, ours = (torch.arange(12.0).reshape(4, 3) for _ in range(2))
        expected = function(theirs, make(theirs), at)
        torch.testing.assert_close(compiled(ours, make(ours), at), expected)
        torch.testing.assert_close(ours, theirs)


def test_a_part_of_a_larger_tensor() -> None:
    def function(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        view = x[1:, ::2]
        view.index_add_(0, at, torch.ones(2, view.shape[1]))
        x[0] = 7
        return view.sum() + x[0]

    compiled = torch.compile(function, backend=max_backend, options=_OPTIONS)
    at = torch.tensor([1, 1])
    for strides in ((6, 1), (1, 5)):
        theirs, ours = (
            torch.arange(30.0)
            .as_strided((5, 6), strides)
            .clone(memory_format=torch.preserve_format)
            for _ in range(2)
        )
        torch.testing.assert_close(compiled(ours, at), function(theirs, at))
        torch.testing.assert_close(ours, theirs)


def test_layers_of_caches() -> None:
    def function(
        x: torch.Tensor, at: torch.Tensor, caches: list[torch.Tensor]
    ) -> list[torch.Tensor]:
        for cache in caches:
            cache.index_copy_(2, at, x.expand(1, 2, 1, 4))
            x = x + cache.sum(2, keepdim=True).mean(1, keepdim=True)
        return [x]

    def lists(*arguments: torch.Tensor) -> list[torch.Tensor]:
        x, at, *caches = arguments
        new = []
        for cache in caches:
            changed = aten.index_put(cache, [None, None, at], x.expand(1, 2, 1, 4))
            new.append(changed)
            x = x + changed.sum(2, keepdim=True).amax(1, keepdim=True)
        result = x * 1
        for cache, changed in zip(caches, new, strict=True):
            cache.copy_(changed)
        return [result]

    caches = [torch.zeros(1, 2, 8, 4) for _ in range(5)]
    plan = same_as_eager(lists, [torch.ones(1, 1, 1, 4), torch.tensor([3]), *caches])
    assert kinds(plan)["tmb_scatter_rows"] == 5
    # Of the rows, which are the same for all heads.
    assert kinds(plan)["copy"] == 5
    assert not any(m.kind == "temporary" and m.size == 64 for m in plan.memory)
    compiled = torch.compile(function, backend=max_backend, options=_OPTIONS)
    theirs, ours = ([torch.zeros(1, 2, 8, 4) for _ in range(3)] for _ in range(2))
    for position in range(8):
        operands = torch.ones(1, 1, 1, 4), torch.tensor([position])
        torch.testing.assert_close(compiled(*operands, ours), function(*operands, theirs))
        torch.testing.assert_close(ours, theirs)
