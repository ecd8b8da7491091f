"""Plans that count what is a size for the plan that follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.tracing import traced
from torch_max_backend import ExecutionError, explain, max_backend
from torch_max_backend.driver.passes import own_modes, prepare
from torch_max_backend.engines.steps.plan_text import text_of
from torch_max_backend.engines.steps.planned import planned
from torch_max_backend.engines.steps.planner.plan import KernelStep, Plan
from torch_max_backend.engines.steps.run import StepExecutable
from torch_max_backend.engines.steps.serialize import deserialized, serialized

X = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


def _plan(function: Callable[..., Any], *given: torch.Tensor) -> Plan:
    with own_modes():
        trace = prepare(traced(function, *given))
        plan = planned(trace)
    run = StepExecutable(plan, trace.signature, trace.constants(), fuse=False)
    found = [t for t in run([g.clone() for g in given]) if isinstance(t, torch.Tensor)]
    # Dynamo has a graph return what it was made from as well.
    for expected in function(*given):
        assert any(f.shape == expected.shape and torch.allclose(f, expected) for f in found)
    return plan


def _kernels(plan: Plan) -> list[str]:
    return [s.symbol for s in plan.steps if isinstance(s, KernelStep)]


def test_what_does_not_wait_for_a_size_runs_first_and_once() -> None:
    def function(x: torch.Tensor) -> Any:
        y = x @ x.t()
        return y[y > 0].exp(), y.cumsum(0), y

    first, rest = _plan(function, X).stages
    assert sorted(_kernels(first)) == ["tmb_count_true", "tmb_cumsum", "tmb_matmul"]
    assert _kernels(rest) == ["tmb_take_true"]
    # The two results of the first plan are not copied by the other.
    assert [before for before, _ in first.then.results] == [False, True, True]  # type: ignore[union-attr]
    assert len(rest.outputs) == 1


def test_counts_that_do_not_wait_for_each_other_are_made_together() -> None:
    def function(x: torch.Tensor) -> Any:
        return x[x > 0], x[x < 0] * 2, x.nonzero()

    first, rest = _plan(function, X).stages
    assert _kernels(first) == ["tmb_count_true"] * 3
    assert first.then is not None
    assert len(first.then.names) == 3
    assert "counting d0, d1, d2" in text_of(first)
    assert text_of(first).count("\nthen ") == 1
    assert sorted(_kernels(rest)) == ["tmb_take_true", "tmb_take_true", "tmb_true_at"]


def test_counts_of_what_was_counted_are_stages_of_their_own() -> None:
    def function(x: torch.Tensor) -> Any:
        some = x[x > 0]
        few = some[some > 0.5]
        return few[few > 1], some.sum()

    plan = _plan(function, X)
    assert len(plan.stages) == 4
    artifact = serialized(plan)
    assert serialized(deserialized(artifact)) == artifact


def test_constants_and_sizes_are_not_handed_on() -> None:
    def function(x: torch.Tensor) -> Any:
        table = torch.arange(8) * 2
        return (x[x > 0][:, None] * table, x[1:, ::2][x[1:, ::2] > 0])

    first, _ = _plan(function, X).stages
    # The two masks and the two counts.
    assert [dtype for dtype, _ in first.outputs] == ["bool", "bool", "int64", "int64"]


def test_sizes_that_are_not_equal_raise() -> None:
    def function(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        some = x[mask]
        torch._check(some.shape[0] == 2)
        return some + torch.arange(2)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=max_backend, options={"engine": "steps"})
    x = torch.arange(4.0)
    assert compiled(x, x > 1).tolist() == [2, 4]
    with pytest.raises((ExecutionError, RuntimeError)):
        compiled(x, x > 2)


def test_explain_counts_the_steps_of_all_stages() -> None:
    found = explain(lambda x: x[x > 0] * 2 + x.sum(), X)
    (part,) = found.graphs[0].parts
    assert part.engine == "steps"
    assert part.steps == 5
