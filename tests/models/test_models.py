"""Real architectures with random weights, whole, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.support.groups import compile_group

# Largest difference from eager float32, relative to eager's largest value.
_TOLERANCE = 2e-4


def _error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    difference = (actual.double() - expected.double()).abs().max()
    return (difference / expected.double().abs().max()).item()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[compile_group(f"model {name}", weight=2), *marks])
        for name, marks in {
            "llama": (),
            "vit": [pytest.mark.thorough],
            "resnet18": (),
            "convnext_atto": [pytest.mark.thorough],
        }.items()
    ],
)
def test_model_agrees_with_eager(name: str) -> None:
    from benchmarks.processes.models import MODELS
    from torch_max_backend import max_backend

    case = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, inputs = case.build(), case.inputs(1, 48)
    compiled = torch.compile(model, backend=max_backend, fullgraph=True, dynamic=False)
    with torch.no_grad():
        expected = case.result(model(**inputs))
        assert _error(case.result(compiled(**inputs)), expected) < _TOLERANCE
        # In-place training of the weights is seen without a recompile.
        next(p for p in model.parameters() if p.ndim > 1).mul_(1.5)
        expected = case.result(model(**inputs))
        assert _error(case.result(compiled(**inputs)), expected) < _TOLERANCE


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[compile_group(f"model {name}", weight=2), *marks])
        for name, marks in {
            "gpt2": [pytest.mark.thorough],
            "bert": [pytest.mark.thorough],
            "esm": (),
        }.items()
    ],
)
def test_dynamic_lengths_share_one_compile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.processes.models import MODELS
    from torch_max_backend import backend

    graphs = []
    compile_graph = backend.compile_graph

    def counted(*args: object) -> object:
        graphs.append(args)
        return compile_graph(*args)

    monkeypatch.setattr(backend, "compile_graph", counted)
    case = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = case.build()
    compiled = torch.compile(
        model, backend="max", fullgraph=True, dynamic=True, options={"cache": False}
    )
    with torch.no_grad():
        for length in (24, 57, 130):
            inputs = case.inputs(2, length)
            expected = case.result(model(**inputs))
            assert _error(case.result(compiled(**inputs)), expected) < _TOLERANCE
    assert len(graphs) == 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[compile_group(f"model {name} bf16", weight=1), *marks])
        for name, marks in {"gpt2": (), "llama": [pytest.mark.thorough]}.items()
    ],
)
def test_bfloat16_is_as_accurate_as_eager(name: str) -> None:
    """No further from the float64 truth than 1.5 times eager bfloat16's own distance."""
    from benchmarks.processes.models import MODELS
    from torch_max_backend import max_backend

    case = MODELS[name]
    torch.manual_seed(0)
    torch._dynamo.reset()
    model = case.build().to(torch.bfloat16)
    inputs = case.inputs(1, 32)
    compiled = torch.compile(model, backend=max_backend, fullgraph=True, dynamic=False)
    with torch.no_grad():
        ours = case.result(compiled(**inputs))
        theirs = case.result(model(**inputs))
        truth = case.result(model.double()(**inputs))
    assert ours.dtype == torch.bfloat16
    spread = (theirs.double() - truth).abs()
    error = (ours.double() - truth).abs()
    assert error.mean() <= 1.5 * spread.mean()
    assert error.max() <= 1.5 * spread.max()
