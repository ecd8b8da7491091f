"""Whole programs through ``torch.compile``: memory, strides, mutation, symbols, threads."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tests.precompiled import Case, Precompiled, whole_programs_by_max
from torch_max_backend import ExecutionError

pytestmark = pytest.mark.xdist_group("compile-0")


def numbers(*shape: int) -> Tensor:
    count = 1
    for size in shape:
        count *= size
    return torch.arange(count, dtype=torch.float32).reshape(shape)


class Affine(torch.nn.Module):
    """A parameter and a buffer, added."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(numbers(3, 4))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight + self.shift


def mutate(x: Tensor) -> Tensor:
    x.add_(1)
    return x + 1


def mutate_and_return_old(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    old, joined, flat = x.clone(), torch.cat([x]), x.clone().view(-1)
    x.add_(1)
    return old, joined, flat


def mutate_strided(x: Tensor, y: Tensor) -> Tensor:
    x.add_(y)
    return x + y


def asserted(x: Tensor) -> Tensor:
    torch._assert_async((x < 9).all(), "größer als erwartet")
    torch._assert_async(x[0, 0] + 1, "one of them is -1")
    return x + 1


def several(x: Tensor) -> tuple[Any, ...]:
    y = x + 1
    return y, None, y, x.shape[0], x


def aliases_of_input(x: Tensor) -> tuple[Tensor, ...]:
    return (
        x.clone(),
        x.reshape(-1).clone(),
        x.expand(1, 3, 4).clone(),
        torch.cat([x]),
        x.repeat(1, 1),
        x.flip(0).flip(0),
        x + 0,
        x.unsqueeze(0).sum(0),
        x.float() + 0.0,
        torch.constant_pad_nd(x, [0, 0]),
        x.t().clone().t().clone(),
    )


def equal_results(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x + y, x + y, y + x, (x + y).reshape(-1).clone(), torch.cat([x + y])


def layouts(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    return (
        y.t().contiguous().t(),
        y.permute(1, 0),
        (y.sum(0, keepdim=True) + 1).expand(3, 4),
        (x.t() + 1),
    )


CASES = {
    "add": Case(lambda: torch.add, lambda: [(numbers(3, 4), torch.ones(4))]),
    "scalar": Case(lambda: lambda x: x + 1, lambda: [(torch.tensor(2.0),)]),
    "empty": Case(lambda: lambda x: x + 1, lambda: [(torch.empty(3, 0),)]),
    # One graph, if they are of one shape.
    "strided": Case(lambda: lambda x: x + 1, lambda: [(numbers(6, 12)[::2, 1::3],)]),
    "transposed": Case(lambda: lambda x: x + 1, lambda: [(numbers(4, 3).t(),)]),
    "expanded": Case(lambda: lambda x: x + 1, lambda: [(numbers(3, 1).expand(3, 4),)]),
    "negated": Case(lambda: lambda x: x + 1, lambda: [(torch._neg_view(numbers(3, 4)),)]),
    "channels_last": Case(
        lambda: lambda x: x + 1,
        lambda: [(numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),)],
    ),
    "affine": Case(Affine, lambda: [(torch.ones(3, 4),)]),
    "affine_inference": Case(lambda: Affine().requires_grad_(False), lambda: [(torch.ones(3, 4),)]),
    "mutate": Case(lambda: mutate, lambda: [(numbers(3, 4),)]),
    "mutate_old": Case(lambda: mutate_and_return_old, lambda: [(numbers(3, 4),)]),
    "mutate_strided": Case(
        lambda: mutate_strided, lambda: [(numbers(4, 6)[::2, ::3], torch.ones(2, 2))]
    ),
    "asserted": Case(lambda: asserted, lambda: [(numbers(2, 4),)]),
    "several": Case(lambda: several, lambda: [(numbers(3, 4),)]),
    "aliases": Case(lambda: aliases_of_input, lambda: [(numbers(3, 4),)]),
    "equal_results": Case(lambda: equal_results, lambda: [(numbers(3, 4), torch.ones(3, 4))]),
    "layouts": Case(lambda: layouts, lambda: [(numbers(3, 4),)]),
    "layouts_dynamic": Case(
        lambda: lambda x: ((x.sum(0, keepdim=True) + 1).expand(x.shape), (x + 1).t()),
        lambda: [(numbers(3, 4),)],
        dynamic=True,
    ),
    "constant": Case(
        lambda: lambda x: (x + 1, torch.tensor(list(range(100))).view(10, 10)),
        lambda: [(numbers(3),)],
    ),
    "size_as_data": Case(
        lambda: lambda x, n: (x + n, x + x.shape[0], n + 1, x.new_zeros(()) + x.shape[0] * n),
        lambda: [(numbers(3, 4), 5)],
        dynamic=True,
    ),
    "mod": Case(
        lambda: lambda x: x[: x.shape[0] % 5] + 1, lambda: [(numbers(8, 4),)], dynamic=True
    ),
    "max": Case(
        lambda: lambda x, y: x.new_zeros(max(x.shape[0], y.shape[0]), 2) + 1,
        lambda: [(numbers(5, 4), numbers(3, 4))],
        dynamic=True,
    ),
    "floor": Case(
        lambda: lambda x: x.view(-1)[: (x.numel() + 1) // 2] + 1,
        lambda: [(numbers(5, 4),)],
        dynamic=True,
    ),
    "dynamic_mutation": Case(lambda: mutate, lambda: [(numbers(3, 4),)], dynamic=True),
    "rolled": Case(lambda: lambda x, n: x.roll(n, 0), lambda: [(numbers(7, 4), 2)], dynamic=True),
}


@pytest.fixture(scope="module", params=["steps", "max"])
def precompiled(request: pytest.FixtureRequest) -> Precompiled:
    return whole_programs_by_max() if request.param == "max" else Precompiled(CASES)


@pytest.fixture
def programs(precompiled: Precompiled) -> Iterator[Precompiled]:
    with precompiled.serving():
        yield precompiled


def tensors(values: Any) -> list[Tensor]:
    return [v for v in pytree.tree_leaves(values) if isinstance(v, Tensor)]


@pytest.mark.parametrize(
    ("value", "message"), [(9.0, "größer als erwartet"), (-1.0, "one of them is -1")]
)
def test_conditions_on_data_raise(programs: Precompiled, value: float, message: str) -> None:
    function, (x,) = programs.compiled("asserted"), programs.arguments("asserted")
    good = x.clone()
    x[0, 0] = value
    with pytest.raises(RuntimeError, match=message):
        asserted(x)
    for _ in range(12):  # the last calls are answered by code that is written out
        with pytest.raises(ExecutionError, match=message):
            function(x)
        torch.testing.assert_close(function(good), good + 1)


def storages(values: Any) -> list[int]:
    return [t.untyped_storage().data_ptr() for t in tensors(values) if t.numel() != 0]


@pytest.mark.parametrize("name", CASES)
def test_results_strides_and_arguments_are_as_eager(programs: Precompiled, name: str) -> None:
    ours, theirs = programs.arguments(name), programs.arguments(name)
    actual = pytree.tree_leaves(programs.compiled(name)(*ours))
    expected = pytree.tree_leaves(programs.eager(name)(*theirs))
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        assert type(a) is type(e)
        if isinstance(e, Tensor):
            torch.testing.assert_close(a, e, check_stride=True)
            assert a.requires_grad == e.requires_grad
        else:
            assert a == e
    for a, e in zip(tensors(ours), tensors(theirs), strict=True):
        torch.testing.assert_close(a, e, check_stride=True)


@pytest.mark.parametrize("name", ["aliases", "equal_results", "constant", "mutate_old", "layouts"])
def test_outputs_share_memory_with_nothing(programs: Precompiled, name: str) -> None:
    function, arguments = programs.compiled(name), programs.arguments(name)
    for _ in range(3):  # what the first call learns must hold in the later ones
        seen = storages([function(*arguments), arguments])
        assert len(seen) == len(set(seen))


@pytest.mark.parametrize("name", ["add", "aliases", "equal_results", "constant", "layouts"])
def test_outputs_belong_to_the_caller(programs: Precompiled, name: str) -> None:
    function, arguments = programs.compiled(name), programs.arguments(name)
    before = [t.clone() for t in tensors(arguments)]
    first = tensors(function(*arguments))
    kept = [t.clone() for t in first]
    second = tensors(function(*arguments))
    for result in second:
        # An expanded result cannot be written to as a whole, in eager either.
        (result[0] if 0 in result.stride() else result).zero_()
    torch.testing.assert_close(first, kept)
    torch.testing.assert_close(tensors(arguments), before)
    torch.testing.assert_close(tensors(function(*arguments)), kept)


def test_several_outputs_are_one_object_where_eager_returns_one(programs: Precompiled) -> None:
    x = programs.arguments("several")[0]
    first, nothing, again, size, same = programs.compiled("several")(x)
    assert first is again or first.data_ptr() == again.data_ptr()
    assert nothing is None
    assert size == 3
    assert same is x


def test_contiguous_argument_is_mutated_in_place(programs: Precompiled) -> None:
    x = numbers(3, 4)
    pointer = x.data_ptr()
    result = programs.compiled("mutate")(x)
    assert x.data_ptr() == pointer
    torch.testing.assert_close(x, numbers(3, 4) + 1)
    torch.testing.assert_close(result, numbers(3, 4) + 2)


def test_strided_argument_is_copied_back_and_nothing_around_it(programs: Precompiled) -> None:
    base = numbers(4, 6)
    expected = base.clone()
    expected[::2, ::3] += 1
    programs.compiled("mutate_strided")(base[::2, ::3], torch.ones(2, 2))
    torch.testing.assert_close(base, expected)


@pytest.mark.parametrize("name", ["affine", "affine_inference"])
def test_parameters_are_seen_when_they_change(programs: Precompiled, name: str) -> None:
    module = programs.eager(name)
    assert isinstance(module, Affine)
    compiled = programs.compile(module)
    x = torch.ones(3, 4)

    def check() -> None:
        torch.testing.assert_close(compiled(x), module(x), check_stride=True)

    check()
    with torch.no_grad():
        module.weight.mul_(2)  # in place
    check()
    module.weight.data = numbers(3, 4) + 100  # other memory
    check()
    module.load_state_dict({"weight": torch.full((3, 4), 7.0), "shift": torch.full((4,), 9.0)})
    check()
    module.shift = torch.full((4,), -3.0)  # another tensor
    check()


def test_training_flows_through_the_compiled_graph(programs: Precompiled) -> None:
    module = programs.eager("affine")
    compiled = programs.compiled("affine")
    result = compiled(torch.ones(3, 4))
    assert result.requires_grad
    assert not result.is_leaf
    assert torch.equal(result.detach(), module(torch.ones(3, 4)).detach())


def test_arguments_that_require_grad_run_under_no_grad(programs: Precompiled) -> None:
    function = programs.compiled("add")
    x = numbers(3, 4).requires_grad_()
    with torch.no_grad():
        result = function(x, torch.ones(4))
    assert not result.requires_grad
    torch.testing.assert_close(result, x.detach() + 1)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("mod", [(numbers(8, 4),), (numbers(9, 4),), (numbers(7, 3),)]),
        ("max", [(numbers(7, 4), numbers(2, 4)), (numbers(2, 4), numbers(9, 4))]),
        ("floor", [(numbers(7, 4),), (numbers(2, 3),), (numbers(3, 3),)]),
        ("size_as_data", [(numbers(3, 4), 5), (numbers(6, 2), 11), (numbers(2, 4), -7)]),
        ("layouts_dynamic", [(numbers(3, 4),), (numbers(6, 2),), (numbers(2, 7),)]),
        ("dynamic_mutation", [(numbers(3, 4),), (numbers(8, 2),), (numbers(2, 5),)]),
    ],
)
def test_one_compile_serves_all_sizes(
    programs: Precompiled, name: str, calls: list[tuple[Any, ...]]
) -> None:
    function, eager = programs.compiled(name), programs.eager(name)
    for arguments in calls:
        copies = [a.clone() if isinstance(a, Tensor) else a for a in arguments]
        torch.testing.assert_close(
            pytree.tree_leaves(function(*arguments)), pytree.tree_leaves(eager(*copies))
        )
        torch.testing.assert_close(tensors(arguments), tensors(copies))
    assert programs.loaded == 1


def test_a_size_that_is_negative(programs: Precompiled) -> None:
    function, x = programs.compiled("rolled"), numbers(7, 4)
    assert torch.equal(function(x, 3), x.roll(3, 0))
    if programs.engine == "steps":
        assert torch.equal(function(x, -3), x.roll(-3, 0))
    else:
        with pytest.raises(ExecutionError, match="no negative one"):
            function(x, -3)
    assert torch.equal(function(x, 1), x.roll(1, 0))


@pytest.mark.parametrize("name", ["add", "mutate_strided", "size_as_data", "layouts_dynamic"])
def test_threads_may_call_one_function(programs: Precompiled, name: str) -> None:
    function, eager = programs.compiled(name), programs.eager(name)
    function(*programs.arguments(name))

    def call(seed: int) -> None:
        for i in range(20):
            ours, theirs = programs.arguments(name), programs.arguments(name)
            for tensor in tensors([ours, theirs]):
                tensor.add_(seed * 100 + i)
            torch.testing.assert_close(
                pytree.tree_leaves(function(*ours)), pytree.tree_leaves(eager(*theirs))
            )
            torch.testing.assert_close(tensors(ours), tensors(theirs), check_stride=True)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(call, seed) for seed in range(4)]:
            done.result()
