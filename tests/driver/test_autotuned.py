"""``mode="max-autotune"``: which candidates there are, and which one stays."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.module_cache import kept_compiles
from tests.tracing import traced_all
from torch_max_backend import CompilationError, max_backend
from torch_max_backend.driver import autotuned
from torch_max_backend.options import Options

TUNED = Options(mode="max-autotune", cache=False)


class _Job:
    """A candidate whose function returns its name."""

    fails = False

    def __init__(self, name: str) -> None:
        self.name = name

    def functions(self, *others: _Job) -> list[Any]:
        if others and self.fails:
            raise CompilationError("a kernel is too slow to compile")
        return [lambda arguments, job=job: [job.name] for job in (self, *others)]


@pytest.fixture
def tuned() -> list[autotuned.Tuned]:
    """Two graphs, the second with one candidate."""
    made = [autotuned.Tuned.__new__(autotuned.Tuned) for _ in range(2)]
    made[0].jobs = {n: _Job(n) for n in ("mkl", "mojo", "max")}  # type: ignore[misc]
    made[1].jobs = {"mkl": _Job("other")}  # type: ignore[dict-item]
    for t in made:
        t._values = []
    return made


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({"mkl": 1.0, "mojo": 0.9, "max": 0.5}, "max"),
        ({"mkl": 1.0, "mojo": 0.99, "max": 2.0}, "mkl"),
        ({"mkl": 1.0, "mojo": 1.5, "max": 2.0}, "mkl"),
    ],
)
def test_the_fastest_stays_unless_it_is_noise(
    tuned: list[autotuned.Tuned],
    seconds: dict[str, float],
    best: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(autotuned, "times", lambda functions, values: seconds)
    first, second = tuned[0].functions(tuned[1])
    assert first([]) == [best]
    assert second([]) == ["other"]
    assert list(tuned[0].jobs) == [best]
    assert tuned[0].chosen.name == best


def test_the_default_stays_if_timing_fails(
    tuned: list[autotuned.Tuned], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(functions: Any, values: Any) -> Any:
        raise ValueError("singular")

    monkeypatch.setattr(autotuned, "times", fails)
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        assert tuned[0].functions()[0]([]) == ["mkl"]
    assert "singular" in caplog.text


def test_a_candidate_that_does_not_compile_costs_only_the_tuning(
    tuned: list[autotuned.Tuned], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tuned[0].jobs["mkl"], "fails", True)
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        assert tuned[0].functions()[0]([]) == ["mkl"]
    assert "too slow" in caplog.text


def test_plans_and_what_max_compiles_are_candidates() -> None:
    from torch_max_backend.driver.autotuned import job_or_candidates

    def jobs(**options: Any) -> list[str]:
        (graph,) = traced_all(lambda a, b: (a @ b).relu(), torch.randn(3, 4), torch.randn(4, 5))
        made = job_or_candidates(graph, (), Options(mode="max-autotune", cache=False, **options))
        return list(made.jobs)

    found = jobs(engine="auto")
    assert "steps mojo" in found
    assert not found[-1].startswith("steps")
    assert len([name for name in found if not name.startswith("steps")]) == 1
    assert all(name.startswith("steps") for name in jobs(engine="steps"))
    assert jobs(engine="auto", bank="mojo") == ["steps mojo", "mojo"]


def test_each_bank_is_a_candidate_where_it_matters(max_engine: None) -> None:
    from torch_max_backend.driver.autotuned import job_or_candidates

    (product,) = traced_all(lambda a, b: (a @ b).relu(), torch.randn(3, 4), torch.randn(4, 5))
    made = job_or_candidates(product, (), TUNED)
    assert isinstance(made, autotuned.Tuned)
    assert {"mojo", "max"} <= set(made.jobs)
    assert len({job.entry for job in made.jobs.values()}) == len(made.jobs)
    (plain,) = traced_all(lambda a: a.relu() + 1, torch.randn(3, 4))
    assert len(job_or_candidates(plain, (), TUNED).jobs) == 1
    (again,) = traced_all(lambda a, b: (a @ b).relu(), torch.randn(3, 4), torch.randn(4, 5))
    only = job_or_candidates(again, (), Options(mode="max-autotune", cache=False, bank="mojo"))
    assert list(only.jobs) == ["mojo"]


def test_arguments_for_timing_are_like_the_graphs() -> None:
    (module,) = traced_all(
        lambda a, i: a.t()[i] * 2, torch.randn(6, 4), torch.tensor([1, 3]), dynamic=True
    )
    values = [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]
    seen: list[Any] = []
    state = torch.get_rng_state()
    autotuned.times({"one": lambda given: seen.append(given)}, values)
    assert torch.equal(state, torch.get_rng_state())
    assert len(seen) > autotuned.LEAST_ROUNDS
    for value, given in zip(values, seen[0], strict=True):
        if isinstance(value, torch.Tensor):
            assert (given.dtype, given.ndim) == (value.dtype, value.ndim)
            assert given.is_floating_point() or not given.any()
        else:
            assert isinstance(given, int)


# MAX compiles its graphs for ``test_training.py``, which runs in the same worker.
@pytest.mark.xdist_group("training")
@kept_compiles()
def test_a_tuned_model_is_eagers(lent_libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def times(functions: Any, values: Any) -> dict[str, float]:
        measured.extend(functions)
        assert len(real(functions, values)) == len(functions)
        return {name: float(name.startswith("steps")) for name in functions}

    real = autotuned.times
    monkeypatch.setattr(autotuned, "times", times)
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.LayerNorm(5)), torch.randn(4, 6)
    compiled = torch.compile(model, backend=max_backend, mode="max-autotune", fullgraph=True)
    state = torch.get_rng_state()
    result = compiled(x)
    result.pow(3).sum().backward()
    assert torch.equal(state, torch.get_rng_state())
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    expected = model(x)
    expected.pow(3).sum().backward()
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(grads, [p.grad for p in model.parameters()])
    # Forward and backward, as steps and as MAX compiled them.
    assert len([name for name in measured if not name.startswith("steps")]) == 2
    assert len(measured) > 3
