"""What MAX does not take runs in eager PyTorch: results, counters, and what is said of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.fx import GraphModule

from tests.support.groups import compile_group
from tests.tracing import traced_all
from torch_max_backend import (
    ExecutionError,
    IndexOutOfBoundsError,
    LinearAlgebraError,
    OptionError,
    UnsupportedOperatorError,
    max_backend,
)
from torch_max_backend.compat.torch_versions import optimization_hint
from torch_max_backend.errors import StepsError
from torch_max_backend.options import Options


@torch.library.custom_op("tests::unknown", mutates_args=())
def unknown(x: Tensor) -> Tensor:
    """Nobody has a lowering for it."""
    return x.flip(0) * 2


unknown.register_fake(torch.empty_like)
unknown.register_autograd(lambda ctx, grad: unknown(grad))


def _between(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = (x + w).relu()
    return unknown(y) * w + y.cos(), y.sum()


def _written(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    x.add_(1)
    y = unknown(x)
    x.mul_(y)
    w.copy_(w.exp() + 1)
    return y + w, x.sum()


def _complex(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    z = torch.complex(x, w) * 2j
    return unknown(z) * x, unknown(z).abs() + z.imag


def _counted(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    places = (x > 0).nonzero()
    return unknown(places) * 2 + places, w.new_ones(places.shape[0]).sum() * places.shape[0]


def _number(x: Tensor, w: Tensor) -> Tensor:
    n = w.sum().item()
    return x * n + torch.full([3, 1], n)


def _chosen(x: Tensor, w: Tensor) -> Tensor:
    """The branches hold an operator without lowering."""
    return torch.cond(x.sum() > 0, lambda v: unknown(v).sin(), lambda v: v.clone(), (x,)) + w


CASES: dict[str, tuple[Callable[..., Any], bool]] = {
    "between": (_between, False),
    "between dynamic": (_between, True),
    "written": (_written, False),
    "complex": (_complex, True),
    "counted": (_counted, True),
    "number": (_number, False),
    "branches": (_chosen, False),
}


def _graph(function: Callable[..., Any], dynamic: bool) -> tuple[GraphModule, list[Any]]:
    """A traced graph with arguments."""
    x, w = torch.randn(3, 5), torch.randn(3, 5)
    with torch._dynamo.config.patch(
        capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True
    ):
        (module,) = traced_all(function, x.clone(), w.clone(), dynamic=dynamic)
    given = iter((x, w))
    values = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    return module, [next(given) if isinstance(v, Tensor) else optimization_hint(v) for v in values]


@cache
def _functions() -> dict[str, tuple[Any, Any, GraphModule, list[Any]]]:
    """Each case with its plan and its function, compiled as one module."""
    from torch_max_backend.driver.partitioned import Partitioned

    torch.manual_seed(0)
    options = Options(fallback="eager", min_ops=0, cache=False)
    graphs = {name: _graph(*case) for name, case in CASES.items()}
    plans = [Partitioned(module, (), options) for module, _ in graphs.values()]
    made = plans[0].functions(*plans[1:])
    return {
        name: (plan, function, *graphs[name])
        for name, plan, function in zip(CASES, plans, made, strict=True)
    }


@compile_group("fallback")
@pytest.mark.parametrize("name", CASES)
def test_results_are_eagers(name: str) -> None:
    plan, function, module, given = _functions()[name]
    assert plan.pieces
    assert plan.reasons
    for shift in (0.0, 0.5):
        ours = [g + shift if isinstance(g, Tensor) else g for g in given]
        theirs = [g.clone() if isinstance(g, Tensor) else g for g in ours]
        torch.testing.assert_close(function(list(ours)), list(module(*theirs)))
        torch.testing.assert_close(ours, theirs)


@compile_group("fallback")
@pytest.mark.parametrize("name", ["written", "counted"])
def test_inductor_runs_what_is_between_parts(name: str) -> None:
    from torch_max_backend.driver.inductor_parts import Compiled, between_parts

    plan, _, module, given = _functions()[name]
    mixed = between_parts(plan.whole)
    assert any(isinstance(child, Compiled) for child in mixed.children())
    ours = [g.clone() if isinstance(g, Tensor) else g for g in given]
    theirs = [g.clone() if isinstance(g, Tensor) else g for g in given]
    torch._dynamo.reset()
    torch.testing.assert_close(list(mixed(*ours)), list(module(*theirs)))
    torch.testing.assert_close(ours, theirs)


def test_eager_takes_over_if_inductor_fails_too(messages: Callable[[], list[str]]) -> None:
    from torch_max_backend.driver.inductor_parts import Compiled

    def fails(*args: Any) -> Any:
        raise torch._dynamo.exc.BackendCompilerFailed(fails, RuntimeError("no g++"), None)

    compiled = Compiled(nn.ReLU())
    compiled._serve = fails
    x = torch.randn(3)
    for _ in range(2):
        assert torch.equal(compiled(x), x.relu())
    assert len(messages()) == 1
    assert "no g++" in messages()[0]


@pytest.fixture
def messages(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What is logged; nothing was told before. Graphs fall back, as they do for users."""
    monkeypatch.setenv("TORCH_MAX_BACKEND_FALLBACK", "eager")
    monkeypatch.setattr("torch_max_backend.driver.torch_runs._told", set())
    torch._dynamo.reset()
    counters.clear()
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        yield lambda: [r.getMessage() for r in caplog.records]
    torch._dynamo.reset()


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(unknown(self.inner(x).tanh())).sin().square().sum()


@compile_group("fallback")
def test_a_model_trains_with_an_operator_that_nobody_knows(messages: Any) -> None:
    torch.manual_seed(0)
    net, x = _Net(), torch.randn(4, 6)

    def gradients(function: Callable[..., Tensor]) -> list[Tensor]:
        net.zero_grad(set_to_none=True)
        loss = function(x)
        loss.backward()
        return [loss.detach(), *(p.grad for p in net.parameters() if p.grad is not None)]

    expected = gradients(net)
    compiled = torch.compile(net, backend=max_backend, options={"min_ops": 1})
    torch.testing.assert_close(gradients(compiled), expected)
    torch.testing.assert_close(gradients(compiled), expected)
    told = [m for m in messages() if "tests.unknown.default" in m]
    assert len(told) == 1, "one message for an operator"
    assert "outside PyTorch" in told[0]
    assert "test_partitioned.py" in told[0]
    known = counters["max_backend"]
    assert known["graphs"] == 2
    assert known["eager tests.unknown.default"] == 2
    assert known["eager operators"] == 2
    assert known["operators"] > 4


@pytest.mark.parametrize("kind", ["view", "attention"])
@pytest.mark.parametrize("train", [True, False])
def test_torch_runs_graphs_whose_tensors_lie_as_tracing_said(
    kind: str, train: bool, messages: Any
) -> None:
    """Tracing has batch norm's result lie as its turned input does; its kernel does not."""
    norm, w = nn.BatchNorm1d(6).train(train), torch.randn(6, 6, requires_grad=True)

    def function(x: Tensor) -> Tensor:
        y = norm(x.transpose(1, 2)).transpose(1, 2)
        return y @ w if kind == "view" else nn.functional.scaled_dot_product_attention(y, y, y)

    x = torch.randn(2, 3, 6)
    compiled = torch.compile(function, backend=max_backend, options={"min_ops": 200})
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-4, atol=1e-4)


def test_sparse_gradients_are_torchs_and_bags_are_ours(messages: Any) -> None:
    bags = nn.EmbeddingBag(9, 4, mode="sum", sparse=True)
    rows = torch.tensor([[1, 8, 1], [0, 0, 5]])
    compiled = torch.compile(bags, backend=max_backend)
    gradients = []
    for call in (bags, compiled):
        bags.zero_grad()
        call(rows).sin().sum().backward()
        gradients.append(bags.weight.grad.to_dense())
    torch.testing.assert_close(gradients[1], gradients[0])
    assert counters["max_backend"]["eager operators"] == 1, messages()


def test_an_error_names_every_operator(messages: Any) -> None:
    def function(x: Tensor) -> Tensor:
        return unknown(x).cos() + unknown(unknown(x))

    compiled = torch.compile(function, backend=max_backend, options={"fallback": "error"})
    with pytest.raises(UnsupportedOperatorError, match=r"unknown.*3 times"):
        compiled(torch.randn(3))


@pytest.mark.parametrize(("engine", "parts"), [("steps", 1), ("max", 0)])
def test_a_small_graph_is_not_worth_a_call_of_max(engine: str, parts: int, messages: Any) -> None:
    counters.clear()
    options = {"engine": engine, "cache": False}
    compiled = torch.compile(lambda x: x.t().exp(), backend=max_backend, options=options)
    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(x), x.t().exp())
    known = counters["max_backend"]
    assert (known["graphs"], known["parts"], known["eager operators"]) == (1, parts, 1 - parts)
    assert not messages()


@pytest.mark.parametrize(("engine", "parts"), [("steps", 2), ("max", 0)])
def test_small_parts_are_not_worth_calls_of_max(engine: str, parts: int) -> None:
    counters.clear()
    options = {"engine": engine, "cache": False, "fallback": "eager"}
    compiled = torch.compile(lambda x: unknown(x.exp()).abs(), backend=max_backend, options=options)
    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(x), unknown(x.exp()).abs())
    known = counters["max_backend"]
    assert (known["parts"], known["eager operators"]) == (parts, 3 - parts)


def test_max_does_not_compile_a_small_graph_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(trace: Any) -> Any:
        node = next(n for n in trace.module.graph.nodes if n.op == "call_function")
        error = StepsError("no step")
        error.refused = ((node, "no step"),)
        raise error

    monkeypatch.setattr("torch_max_backend.engines.steps.planned.planned", planned)
    counters.clear()
    options = {"engine": "auto", "cache": False, "fallback": "eager"}
    compiled = torch.compile(torch.exp, backend=max_backend, options=options)
    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(x), x.exp())
    assert (counters["max_backend"]["parts"], counters["max_backend"]["eager operators"]) == (0, 1)


def test_a_graph_that_max_cannot_compile(
    messages: Any, monkeypatch: pytest.MonkeyPatch, private_cache: object, max_engine: None
) -> None:
    from torch_max_backend.errors import CompilationError

    def fails(*given: Any) -> Any:
        raise CompilationError("no registers left")

    monkeypatch.setattr("torch_max_backend.driver.job.compile_together", fails)
    x = torch.randn(3, 5, requires_grad=True)
    compiled = torch.compile(lambda v: (v.sin() * 3).exp().sum(), backend=max_backend)
    compiled(x).backward()
    torch.testing.assert_close(x.grad, ((x.sin() * 3).exp() * 3 * x.cos()).detach())
    assert counters["max_backend"]["failed graphs"] == 2
    assert "no registers left" in messages()[0]


class _Failing:
    """Stands for a model that fails while it runs."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        raise self.error


@pytest.mark.parametrize("known", [True, False], ids=["with its graph", "from the cache"])
def test_a_model_that_fails_while_it_runs(known: bool, messages: Any) -> None:
    from torch_max_backend.driver.calls import called
    from torch_max_backend.driver.torch_runs import Guarded

    module, given = _graph(lambda x, w: (x + w).cos(), False)
    fails = _Failing(ExecutionError("out of memory"))
    guarded = Guarded(fails, module, False)
    whole = called(fails, module)
    for _ in range(2):
        found = guarded(list(given)) if known else whole(*given)
        torch.testing.assert_close(list(found), list(module(*given)))
    assert fails.calls == 1
    assert counters["max_backend"]["failed runs"] == 1
    assert "out of memory" in messages()[0]


def _after_writing() -> ExecutionError:
    error = ExecutionError("out of memory")
    error.wrote = True
    return error


@pytest.mark.parametrize(
    "error", [_after_writing(), IndexOutOfBoundsError("index 9"), LinearAlgebraError("singular")]
)
def test_an_error_that_eager_cannot_mend_is_raised(error: ExecutionError, messages: Any) -> None:
    from torch_max_backend.driver.calls import called
    from torch_max_backend.driver.torch_runs import Guarded

    module, given = _graph(lambda x, w: (x + w).cos(), False)
    fails = _Failing(error)
    with pytest.raises(type(error)):
        Guarded(fails, module, False)(list(given))
    with pytest.raises(type(error)):
        called(fails, module)(*given)
    assert not counters["max_backend"]["failed runs"]
    assert not messages()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("fallback", "numpy", "'eager', 'inductor', 'error' or None, not 'numpy'"),
        ("min_ops", -1, "an int from 0 or None, not -1"),
        ("min_ops", True, "not True"),
    ],
)
def test_options_are_checked(name: str, value: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        Options.parse(None, {name: value})
