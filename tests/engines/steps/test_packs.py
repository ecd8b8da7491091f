"""Weights that are packed once: right whatever is written to them, shared, and gone with them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from tests.engines.steps.plans import kinds
from torch_max_backend.driver.passes import prepare
from torch_max_backend.engines.steps import packs
from torch_max_backend.engines.steps.planned import planned
from torch_max_backend.engines.steps.run import StepExecutable
from torch_max_backend.graph.decompositions.table import decomposition_table


def _packed(
    function: Callable[..., Any], arguments: Sequence[Tensor], weights: Sequence[int]
) -> StepExecutable:
    """What runs a function, some of whose arguments are packed."""
    module = make_fx(function, decomposition_table(), "fake", _allow_non_fake_inputs=True)(
        *(t.detach() for t in arguments)
    )
    trace = prepare(module)
    return StepExecutable(
        planned(trace), trace.signature, trace.constants(), weights, fuse=False, pack=True
    )


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    gc.collect()
    before = {*packs._copies}
    yield
    gc.collect()
    assert {*packs._copies} <= before, "packed weights outlive their weights"


def _check(executable: StepExecutable, x: Tensor, weight: Tensor) -> None:
    (found,), (expected,) = executable([x, weight]), _linear(x, weight)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def _linear(x: Tensor, weight: Tensor) -> list[Tensor]:
    return [F.linear(x, weight)]


def _products(*operands: Tensor) -> list[Tensor]:
    """Of each dtype a product with rows of weights and one with columns of them."""
    found = []
    for i in range(0, len(operands), 4):
        x, rows, columns, bias = operands[i : i + 4]
        found += [F.gelu(F.linear(x, rows, bias)), x @ columns]
    return found


@pytest.mark.parametrize("rows", [3, 50, 230])
def test_products(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    operands: list[Tensor] = []
    for dtype in (torch.float32, torch.float64, torch.float16):
        shapes = ((rows, 420), (1061, 420), (420, 45), (1061,))
        operands += [(torch.randn(s, generator=generator) / 20).to(dtype) for s in shapes]
    weights = [i for i in range(len(operands)) if i % 4 in (1, 2)]
    executable = _packed(_products, operands, weights)
    assert kinds(executable._plan)["tmb_packed_matmul"] == 6
    exact = _products(*(t.double() for t in operands))
    for _ in range(12):
        found = executable([*operands])
        for actual, expected in zip(found, exact, strict=True):
            near = 2e-3 if actual.dtype == torch.float16 else 2e-6
            torch.testing.assert_close(actual.double(), expected, rtol=near, atol=near)


@pytest.mark.parametrize(
    ("inputs", "outputs", "size", "window", "settings"),
    [
        (64, 100, 14, 3, {"padding": 1}),
        (256, 256, 5, 3, {"padding": 1}),
        (1024, 512, 14, 1, {}),
        (3, 70, 33, 7, {"stride": 2, "padding": 3}),
        (48, 60, 20, 3, {"padding": 2, "dilation": 2, "groups": 3}),
    ],
)
def test_convolutions(
    inputs: int, outputs: int, size: int, window: int, settings: dict[str, int]
) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, inputs, size, size, generator=generator)
    shape = (outputs, inputs // settings.get("groups", 1), window, window)
    weight = torch.randn(shape, generator=generator) / (inputs * window**2) ** 0.5

    def function(x: Tensor, weight: Tensor) -> list[Tensor]:
        return [F.relu(F.conv2d(x, weight, **settings))]

    executable = _packed(function, [x, weight], [1])
    assert len(executable._plan.packs) == 1
    for threads in (2, 1, 2):
        torch.set_num_threads(threads)
        (found,) = executable([x, weight])
        exact = function(x.double(), weight.double())[0]
        torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)


def test_large_numbers_are_convolved_directly() -> None:
    x, weight = torch.ones(1, 64, 14, 14), torch.ones(64, 64, 3, 3)

    def function(x: Tensor, weight: Tensor) -> list[Tensor]:
        return [F.conv2d(x, weight)]

    executable = _packed(function, [x, weight], [1])
    for place, value in ((x, 1e30), (weight, 1e30), (weight, float("inf"))):
        place.flatten()[5] = value
        torch.testing.assert_close(executable([x, weight]), function(x, weight))
        place.flatten()[5] = 1


def test_a_weight_that_is_written_to_is_packed_again() -> None:
    x, weight = torch.randn(20, 128), torch.randn(64, 128)
    executable = _packed(_linear, [x, weight], [1])
    for number in range(24):
        # Code that is written out answers the later calls.
        _check(executable, x, weight)
        if number % 3 == 0:
            weight.mul_(-1.5)
        elif number % 3 == 1:
            weight.data = weight.data * 2
            weight.data = weight.data * 2


def test_calls_with_other_weights_keep_those_of_each() -> None:
    x, weights = torch.randn(20, 128), [torch.randn(64, 128) for _ in range(3)]
    executable = _packed(_linear, [x, weights[0]], [1])
    for number in range(36):
        weight = weights[number % 3]
        _check(executable, x, weight)
    assert len(executable._packs._held) == 3
    kept = {id(c.tensor): c.tensor._version for c in executable._packs._held.values()}
    executable([x, weights[1]])
    assert {id(c.tensor): 0 for c in executable._packs._held.values()} == kept
    del weight, weights[0]
    assert len(executable._packs._held) == 2


def test_a_weight_where_another_one_was_is_not_taken_for_it() -> None:
    x = torch.randn(20, 512)
    executable = _packed(_linear, [x, torch.randn(512, 512)], [1])
    for _ in range(20):
        # As a rule it is where the last one was, and has been written to as often.
        weight = torch.randn(512, 512)
        _check(executable, x, weight)
        del weight


def test_graphs_share_them() -> None:
    weight = torch.randn(64, 128)
    several = [torch.randn(rows, 128) for rows in (5, 40)]
    executables = [_packed(_linear, [x, weight], [1]) for x in several]
    for x, executable in zip(several, executables, strict=True):
        _check(executable, x, weight)
    first, second = (next(iter(e._packs._held.values())) for e in executables)
    assert first is second


def test_weights_that_are_not_dense_or_made_for_inference() -> None:
    x = torch.randn(20, 128)
    with torch.inference_mode():
        made = torch.randn(64, 128)
    for weight in (torch.randn(64, 256)[:, ::2], torch._neg_view(torch.randn(64, 128)), made):
        executable = _packed(_linear, [x, torch.randn(64, 128)], [1])
        for _ in range(12):
            _check(executable, x, weight)


def test_threads_that_call_at_once() -> None:
    x, weights = torch.randn(20, 128), [torch.randn(64, 128) for _ in range(4)]
    executable = _packed(_linear, [x, weights[0]], [1])

    def call(number: int) -> bool:
        weight = weights[number % len(weights)]
        (found,) = executable([x, weight])
        return torch.allclose(found, F.linear(x, weight), atol=1e-3)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(400)))


def test_a_compiled_model_by_the_option() -> None:
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 36, 40))
    compiled = torch.compile(model, backend="max", options={"pack": True, "engine": "steps"})
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        assert len(packs._copies) >= 1
        model.load_state_dict({k: 2 * v for k, v in model.state_dict().items()})
        torch.testing.assert_close(compiled(x), model(x))
    # Training packs nothing, and writes to all of them.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        compiled(x).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
