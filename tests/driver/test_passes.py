"""The list of passes: each optional one can be left out, and only changes how a graph is run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from tests.tracing import traced
from torch_max_backend import OptionError, max_backend
from torch_max_backend.options import OPTIONAL_PASSES, Options

aten = torch.ops.aten
WEIGHT = torch.randint(-9, 9, (32, 16), dtype=torch.int8)

# By pass: a function, its arguments, and the operator that is in its graph if the pass ran, or if
# it did not.
CASES: dict[str, tuple[Callable[..., Any], Sequence[torch.Tensor], str, bool]] = {
    "constant_folding": (
        lambda x: x + torch.arange(4) * 2,
        [torch.randn(3, 4)],
        "aten.arange.start_step",
        False,
    ),
    "strided_copies": (
        lambda x: x.t().contiguous() + 1,
        [torch.randn(96, 64)],
        "aten.as_strided.default",
        True,
    ),
    "narrow_weights": (
        lambda x, w: x @ w.to(x.dtype),
        [torch.randn(4, 32), WEIGHT],
        "torch_max_backend.narrow_mm.default",
        True,
    ),
    "epilogue_fusion": (
        lambda x, w, b: torch.addmm(b, x, w).relu(),
        [torch.randn(4, 32), torch.randn(32, 16), torch.randn(16)],
        "torch_max_backend.fused_addmm.default",
        True,
    ),
}


def _operators(name: str, skipped: Sequence[str]) -> set[str]:
    from torch_max_backend.driver.passes import own_modes, prepare

    function, arguments, _, _ = CASES[name]
    with own_modes():
        trace = prepare(traced(function, *arguments), Options(skip_passes=tuple(skipped)))
    return {str(n.target) for n in trace.module.graph.nodes if n.op == "call_function"}


def test_every_optional_pass_has_a_case() -> None:
    assert set(CASES) == set(OPTIONAL_PASSES)


@pytest.mark.parametrize("name", OPTIONAL_PASSES)
def test_a_pass_can_be_left_out(name: str) -> None:
    _, _, operator, by_pass = CASES[name]
    assert (operator in _operators(name, ())) == by_pass
    assert (operator in _operators(name, [name])) != by_pass


@pytest.mark.parametrize("name", OPTIONAL_PASSES)
def test_results_are_the_same_without_it(name: str) -> None:
    function, arguments, _, _ = CASES[name]
    torch._dynamo.reset()
    options = {"skip_passes": [name], "engine": "steps", "min_ops": 1}
    found = torch.compile(function, backend=max_backend, options=options)(*arguments)
    torch.testing.assert_close(found, function(*arguments))


def test_each_pass_runs_once() -> None:
    from torch_max_backend.driver.passes import Pass, run_passes

    graph = traced(lambda x: x + 1, torch.ones(2))
    ran = []
    passes = [Pass(n, lambda module, n=n: ran.append(n)) for n in ("first", "second")]
    for _ in range(2):
        graph = run_passes(graph, passes)
    assert ran == ["first", "second"]


@pytest.mark.parametrize("value", [["inline_higher_order"], "constant_folding", [1]])
def test_a_pass_that_must_run_cannot_be_left_out(value: Any) -> None:
    with pytest.raises(OptionError, match="a list of names among 'constant_folding'"):
        Options.parse(None, {"skip_passes": value})
