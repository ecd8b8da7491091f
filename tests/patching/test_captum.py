"""Attributions with captum, of a model that is compiled and of one whose blocks are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.patching.test_patch import Stack, X
from torch_max_backend import max_backend, patch

attr = pytest.importorskip("captum.attr")


@pytest.fixture(scope="module")
def model() -> Stack:
    torch._dynamo.reset()
    torch.manual_seed(0)
    return Stack().eval()


@pytest.mark.parametrize("method", ["IntegratedGradients", "Saliency", "FeatureAblation"])
def test_of_inputs(model: Stack, method: str) -> None:
    compiled = torch.compile(model, backend=max_backend)
    expected, ours = (getattr(attr, method)(m).attribute(X, target=2) for m in (model, compiled))
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "layer"),
    [
        ("LayerActivation", "layers.1"),
        ("LayerConductance", "layers.1"),
        ("LayerIntegratedGradients", "layers.0.wide"),
        ("LayerGradientXActivation", "layers.2.norm"),
    ],
)
def test_of_layers(model: Stack, method: str, layer: str) -> None:
    def scores() -> Any:
        found: nn.Module = model.get_submodule(layer)
        arguments = {} if method == "LayerActivation" else {"target": 2}
        return getattr(attr, method)(model, found).attribute(X, **arguments)

    expected = scores()
    with patch(model):
        model(X)
        torch.testing.assert_close(scores(), expected, rtol=1e-4, atol=1e-5)
