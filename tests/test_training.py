"""Forward and backward graphs: compiled together, found together, failing apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.fx import GraphModule

from tests.precompiled import Interpreted
from tests.support.module_cache import kept_compiles
from torch_max_backend import UnsupportedError, max_backend
from torch_max_backend.cache import loaded_models, store
from torch_max_backend.driver.unit import CompiledGraph
from torch_max_backend.graph.signature import Signature

pytestmark = pytest.mark.xdist_group("training")


@pytest.fixture
def plans(lent_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were planned for the steps engine."""
    from torch_max_backend.engines.steps import planned

    traces: list[Any] = []
    plan = planned.planned
    monkeypatch.setattr(planned, "planned", lambda trace: traces.append(trace) or plan(trace))
    return traces


@pytest.fixture
def modules(private_cache: Path, max_engine: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many graphs each module had that MAX compiled."""
    from torch_max_backend.driver import job

    counts: list[int] = []
    made = job.compile_together

    def counted(jobs: Any) -> Any:
        counts.append(len(jobs))
        return made(jobs)

    monkeypatch.setattr(job, "compile_together", counted)
    return counts


def _gradients(function: Any, module: nn.Module, x: Tensor) -> list[Tensor]:
    module.zero_grad()
    function(x).pow(3).sum().backward()
    return [p.grad.clone() for p in module.parameters() if p.grad is not None]


@kept_compiles()
def test_forward_and_backward_are_one_module(modules: list[int], private_cache: Path) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5)), torch.randn(4, 6)
    expected = _gradients(module, module, x)
    compiled = torch.compile(module, backend=max_backend, fullgraph=True)
    torch.testing.assert_close(_gradients(compiled, module, x), expected)
    assert modules == [2]
    entries = [store.get(path.stem) for path in (private_cache / "artifacts").glob("*.max")]
    assert len(entries) == 2
    assert entries[0] == entries[1]

    # Another process finds both in AOTAutograd's cache, and loads them with one artifact.
    del compiled
    compiled = _loaded(module, x, expected)
    assert modules == [2]
    loss = compiled(x).pow(3).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], [3 * g for g in expected])


def test_plans_of_forward_and_backward_are_found(plans: list[Any], private_cache: Path) -> None:
    torch.manual_seed(0)
    module, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5)), torch.randn(4, 6)
    expected = _gradients(module, module, x)
    compiled = torch.compile(module, backend=max_backend, fullgraph=True)
    torch.testing.assert_close(_gradients(compiled, module, x), expected)
    assert len(plans) == 2
    assert len(list((private_cache / "artifacts").glob("*.max"))) == 2
    del compiled
    compiled = _loaded(module, x, expected)
    assert len(plans) == 2
    loss = compiled(x).pow(3).sum()
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], [3 * g for g in expected])


def _loaded(module: nn.Module, x: Tensor, expected: list[Tensor]) -> Any:
    """The compiled module as another process finds it."""
    torch._dynamo.reset()
    loaded_models._held.clear()
    counters.clear()
    compiled = torch.compile(module, backend=max_backend, fullgraph=True)
    torch.testing.assert_close(_gradients(compiled, module, x), expected)
    assert counters["aot_autograd"]["autograd_cache_hit"] == 1
    return compiled


@pytest.mark.parametrize("setting", ["option", "config"])
def test_a_smaller_budget_keeps_less(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def start(module: GraphModule, *_: Any) -> Interpreted:
        (results,) = next(n for n in reversed(module.graph.nodes) if n.op == "output").args
        counts.append(len(results))
        run = make_boxed_func(module.forward)
        return Interpreted(CompiledGraph(run, "", Signature(arguments=0), {}, ()))

    monkeypatch.setattr("torch_max_backend.backend.start", start)
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE", "0")
    module, x = nn.Sequential(*[nn.Linear(8, 8), nn.Tanh()] * 4), torch.randn(4, 8)
    expected = _gradients(module, module, x)
    for budget in (1.0, 0.0):
        torch._dynamo.reset()
        options = {"activation_memory_budget": budget} if setting == "option" else {}
        config = {} if setting == "option" else {"activation_memory_budget": budget}
        with torch._functorch.config.patch(config):
            compiled = torch.compile(module, backend=max_backend, options=options)
            torch.testing.assert_close(_gradients(compiled, module, x), expected)
    most, least = counts[::2]  # of the forward graphs
    assert most > least


@torch.library.custom_op("tests::unknown_gradient", mutates_args=())
def _unknown(x: Tensor) -> Tensor:
    return x * 2


_unknown.register_fake(torch.empty_like)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(context: Any, grad: Tensor) -> Tensor:
        return _unknown(grad)


def test_what_backward_lacks_is_no_concern_of_forward(plans: list[Any]) -> None:
    x = torch.randn(4, 3, requires_grad=True)
    compiled = torch.compile(_Doubled.apply, backend=max_backend, fullgraph=True)
    result = compiled(x)
    torch.testing.assert_close(result, x * 2)
    with pytest.raises(UnsupportedError, match="unknown_gradient"):
        result.sum().backward()
    assert len(plans) == 1
