"""Graphs on the steps engine, from ``torch.compile`` to results."""

import time

import pytest
import torch
from torch._dynamo.utils import counters

from tests.conformance.program import Program
from tests.conformance.steps import plan_together
from torch_max_backend import explain, max_backend
from torch_max_backend.driver import job
from torch_max_backend.engines.steps import fused
from torch_max_backend.errors import ConversionError, IndexOutOfBoundsError, StepsError

STEPS = {"engine": "steps", "fallback": "error", "cache": False}


def _compiled(function: object, **options: object) -> object:
    torch._dynamo.reset()
    return torch.compile(function, backend=max_backend, options={**STEPS, **options})


def _gated(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = x + bias
    return y * torch.sigmoid(y) - y.abs()


def _products(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x @ y @ x @ y).relu()


def test_explain_tells_the_engine_and_what_keeps_a_graph_from_steps() -> None:
    found = explain(_gated, torch.randn(4, 8), torch.randn(8))
    (part,) = found.graphs[0].parts
    assert part.engine == "steps"
    assert part.steps == 1
    assert found.compiles == 0

    given = torch.randn(4, 8), torch.randn(8, 4)
    found = explain(_products, *given, options={"bank": False})
    (part,) = found.graphs[0].parts
    assert part.engine == "max"
    assert any("MAX's operation" in why for why in part.kept.values())


def test_an_operation_without_a_step_is_named_with_the_users_line() -> None:
    compiled = _compiled(_products, bank=False)
    with torch.no_grad(), pytest.raises(StepsError, match="MAX's operation") as caught:
        compiled(torch.randn(4, 8), torch.randn(8, 4))  # type: ignore[operator]
    assert "test_engine.py" in str(caught.value)


def test_torch_runs_few_operations_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(jobs: object) -> None:
        raise AssertionError("MAX compiles")

    monkeypatch.setattr(job, "compile_together", refuse)

    def multiplied(x: torch.Tensor) -> torch.Tensor:
        y = torch.sigmoid(x * 2 + 1) - 0.5
        return (y @ y.t() + 1).sum(0).float() * y.mean()

    options = {"fallback": "eager", "min_ops": 1, "bank": False}
    found = explain(multiplied, torch.randn(4, 8), options=options)
    assert [p.engine for p in found.graphs[0].parts] == ["steps", "steps"]
    assert [o.name for o in found.graphs[0].operators if o.place == "eager"] == ["aten.mm.default"]
    counters.clear()
    compiled = torch.compile(multiplied, backend=max_backend, fullgraph=True, options=options)
    for rows in (3, 5, 7):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), multiplied(x))
    assert counters["max_backend"]["eager aten.mm.default"] >= 1
    assert counters["max_backend"]["parts"] == 2 * counters["max_backend"]["graphs"]


def test_calls_that_are_written_out_give_what_the_general_way_gives() -> None:
    compiled = _compiled(_gated)
    bias = torch.randn(40)
    with torch.no_grad():
        for i in range(15):
            x = torch.randn(24, 40)
            torch.testing.assert_close(compiled(x, bias), _gated(x, bias))  # type: ignore[operator]
            if i % 4 == 3:
                turned = torch.randn(40, 24).t()
                found = compiled(turned, bias)  # type: ignore[operator]
                torch.testing.assert_close(found, _gated(turned, bias))


def test_parameters_that_move_are_noticed() -> None:
    linear = torch.nn.Linear(16, 16)
    compiled = _compiled(linear)
    x = torch.randn(3, 16)
    with torch.no_grad():
        for i in range(14):
            if i % 3 == 2:
                linear.weight.data = torch.randn(16, 16)
            torch.testing.assert_close(compiled(x), linear(x))  # type: ignore[operator]


def test_one_plan_serves_all_sizes() -> None:
    torch._dynamo.reset()
    graphs = counters["stats"]["unique_graphs"]

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.t(), -1).sum(0) + x.shape[0]

    compiled = torch.compile(function, backend=max_backend, dynamic=True, options=STEPS)
    with torch.no_grad():
        for n in [2, 3, 17, 64, *range(5, 60)]:
            x = torch.randn(n, 12)
            expected = torch.softmax(x @ x.t(), -1).sum(0) + n
            torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-5)
    assert counters["stats"]["unique_graphs"] == graphs + 1


def test_a_failing_kernel_names_the_operator_and_the_next_call_is_right() -> None:
    table = torch.randn(5, 8)
    compiled = _compiled(lambda i: torch.nn.functional.embedding(i, table) * 2)
    good = torch.tensor([1, 4])
    with torch.no_grad():
        for _ in range(12):
            with pytest.raises(IndexOutOfBoundsError, match="embedding"):
                compiled(torch.tensor([1, 5]))  # type: ignore[operator]
            torch.testing.assert_close(compiled(good), table[good] * 2)  # type: ignore[operator]


def test_fused_programs_give_the_bits_of_interpreted_ones() -> None:
    x, bias = torch.randn(33, 70), torch.randn(70)
    with torch.no_grad():
        interpreted = _compiled(_gated, fuse=False)(x, bias)  # type: ignore[operator]
        compiled = _compiled(_gated, fuse=True)(x, bias)  # type: ignore[operator]
    assert torch.equal(interpreted, compiled)
    assert fused._addresses


def test_programs_are_fused_in_the_background_and_swapped_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_FUSE", "1")
    monkeypatch.setattr(fused, "_addresses", {})
    compiled = _compiled(_gated)
    x, bias = torch.randn(33, 70), torch.randn(70)
    with torch.no_grad():
        expected = compiled(x, bias)  # type: ignore[operator]
        end = time.monotonic() + 120
        while not fused._addresses and time.monotonic() < end:
            assert torch.equal(compiled(x, bias), expected)  # type: ignore[operator]
            time.sleep(0.01)
        assert fused._addresses
        assert torch.equal(compiled(x, bias), expected)  # type: ignore[operator]


def test_a_condition_on_sizes_that_does_not_hold_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_MAX_BACKEND_ENGINE", "steps")

    def guarded(x: torch.Tensor) -> torch.Tensor:
        torch.ops.aten._assert_scalar(x.shape[0] > 2, "too few rows")
        return x * 2 + 1

    program = Program("guarded", guarded, [torch.ones(4, 3)], dynamic=True)
    plan_together([program])
    for _ in range(12):  # beyond the call that is written out
        program.assert_agrees()
    with pytest.raises(RuntimeError, match="too few rows"):
        program.run([torch.ones(2, 3)])


def test_a_defect_of_the_planner_is_told_and_torch_runs_the_graph(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch_max_backend.engines.steps.planner import fusion, planning

    def fails(*arguments: object) -> None:
        raise AssertionError("passes need each other")

    # Planning may have imported it by name.
    for module in (fusion, planning):
        monkeypatch.setattr(module, "fused", fails, raising=False)
    x, bias = torch.randn(4, 8), torch.randn(8)
    counters.clear()
    compiled = _compiled(_gated, engine="auto", fallback="eager")
    torch.testing.assert_close(compiled(x, bias), _gated(x, bias))
    assert counters["max_backend"]["failed graphs"] == 1
    with pytest.raises(ConversionError, match="failed to plan this graph: AssertionError: passes"):
        _compiled(_gated)(x, bias)
