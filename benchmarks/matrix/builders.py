"""What the definitions of models share: how a model is made of names and settings, and inputs."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.processes.models import ModelCase

VOCABULARY = 128

Inputs = Callable[[int, int], dict[str, Any]]


def tokens(*names: str) -> Inputs:
    """Token ids ``[batch, length]``, int64, for each name."""
    return lambda batch, length: {
        name: torch.randint(4, VOCABULARY, (batch, length)) for name in names or ("input_ids",)
    }


def normal(name: str, *shape: int, **more: Inputs | tuple[int, ...]) -> Inputs:
    """Normal float32 numbers ``[batch, *shape]`` under a name; others as shapes."""
    shapes = {name: shape, **more}
    return lambda batch, length: {n: torch.randn(batch, *s) for n, s in shapes.items()}


def together(*makers: Inputs) -> Inputs:
    """All arguments that the makers make."""
    return lambda batch, length: {k: v for make in makers for k, v in make(batch, length).items()}


def of_transformers(
    family: str, name: str, model: str, inputs: Inputs, **settings: Any
) -> ModelCase:
    """A class of transformers, its configuration with these settings.

    A setting that is a dictionary with the key ``"class"`` is the configuration that it names.
    """

    def build() -> torch.nn.Module:
        transformers = importlib.import_module("transformers")
        made = {k: _configuration(v) for k, v in settings.items()}
        kind = getattr(transformers, model)
        return kind(kind.config_class(**made)).eval()

    return ModelCase(name, build, inputs, family=family)


def _configuration(value: Any) -> Any:
    if not isinstance(value, dict) or "class" not in value:
        return value
    transformers = importlib.import_module("transformers")
    rest = {k: v for k, v in value.items() if k != "class"}
    return getattr(transformers, value["class"])(**rest)


def of_library(
    family: str, name: str, module: str, function: str, inputs: Inputs, **settings: Any
) -> ModelCase:
    """What a function or class of a library makes of these settings."""

    def build() -> torch.nn.Module:
        return getattr(importlib.import_module(module), function)(**settings).eval()

    return ModelCase(name, build, inputs, family=family)
