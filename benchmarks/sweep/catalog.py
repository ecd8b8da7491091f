"""The architectures there are, by name, and small models of them."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from benchmarks.sweep import diffusion, packages
from benchmarks.sweep.inputs import arguments
from benchmarks.sweep.small import small

MOST_PARAMETERS = 100e6

_MAPPINGS = (
    "MODEL_MAPPING_NAMES",
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "MODEL_FOR_PRETRAINING_MAPPING_NAMES",
    "MODEL_FOR_BACKBONE_MAPPING_NAMES",
)
_AUTO = (
    "AutoModel",
    "AutoModelForCausalLM",
    "AutoModelForImageClassification",
    "AutoModelForPreTraining",
    "AutoBackbone",
)


def names() -> list[str]:
    """ "transformers/bert", "timm/resnet", "torchvision/alexnet", ..., all there are."""
    import timm
    import torchvision
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    # Parts of other models have a configuration, and no class that is found by it.
    known = {n for mapping in _MAPPINGS for n in getattr(modeling_auto, mapping)}
    found = [f"transformers/{name}" for name in CONFIG_MAPPING_NAMES if name in known]
    found += [f"timm/{name}" for name in timm.list_modules() if timm.list_models(module=name)]
    found += [f"torchvision/{name}" for name in torchvision.models.list_models()]
    found += [f"diffusers/{name}" for name in diffusion.MODELS]
    return [*found, *packages.names()]


def model_of(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """A small model of an architecture with random weights, and arguments that it takes.

    Raises:
        Exception: It cannot be made small, or it is not known what it takes.
    """
    library, _, kind = name.partition("/")
    torch.manual_seed(0)
    if library == "transformers":
        return _of_transformers(kind)
    if library == "diffusers":
        return diffusion.model_of(kind)
    if library not in ("timm", "torchvision"):
        return packages.model_of(name)
    model = _of_timm(kind) if library == "timm" else _of_torchvision(kind)
    model.eval()
    return model, _images(model, name)


def _of_transformers(kind: str) -> tuple[nn.Module, dict[str, Any]]:
    import transformers
    from transformers import CONFIG_MAPPING

    first: Exception | None = None
    for width, grouped in ((True, True), (True, False), (False, True)):
        for auto in _AUTO:
            try:
                config = small(CONFIG_MAPPING[kind](), width, grouped)
                with torch.device("meta"):
                    model = getattr(transformers, auto).from_config(config)
                if sum(p.numel() for p in model.parameters()) > MOST_PARAMETERS:
                    raise ValueError("it does not become small")
                torch.manual_seed(0)
                model = getattr(transformers, auto).from_config(config).eval()
                # Random numbers of compiled graphs are not eager's.
                for noise in vars(model).keys() & {"noise_scale", "noise_scale_duration"}:
                    setattr(model, noise, 0.0)
                return model, arguments(model)
            except Exception as e:
                # The most telling one: that of the narrow model, if there is a class for it.
                if first is None or "Unrecognized configuration class" in str(first):
                    first = e
    raise first or ValueError("no class of models")


def _of_timm(kind: str) -> nn.Module:
    import timm

    found: tuple[float, str] | None = None
    named = sorted(timm.list_models(module=kind), key=_sounds_large)
    for name in named[:8]:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                size = sum(p.numel() for p in timm.create_model(name).parameters())
            except Exception:
                continue
        if found is None or size < found[0]:
            found = (size, name)
        if size < 1e7:
            break
    if found is None or found[0] > MOST_PARAMETERS:
        raise ValueError("none of its models is small")
    return timm.create_model(found[1])


def _sounds_large(name: str) -> bool:
    words = ("atto", "femto", "pico", "nano", "tiny", "small", "xxs", "xs", "_s", "b0", "18", "050")
    return not any(word in name for word in words)


def _of_torchvision(kind: str) -> nn.Module:
    import torchvision

    weights = torchvision.models.get_model_weights(kind)
    if min(w.meta["num_params"] for w in weights) > MOST_PARAMETERS:
        raise ValueError("it is large")
    return torchvision.models.get_model(kind, weights=None, **_no_backbone(kind))


def _no_backbone(kind: str) -> dict[str, Any]:
    heads = ("rcnn", "retinanet", "fcos", "ssd", "deeplab", "fcn_", "lraspp")
    return {"weights_backbone": None} if any(h in kind for h in heads) else {}


def _images(model: nn.Module, name: str) -> dict[str, Any]:
    """Images that a model of timm or torchvision takes, by the name of its first parameter."""
    import inspect

    size = getattr(model, "pretrained_cfg", {}).get("input_size", (3, 224, 224))
    (first, *_) = inspect.signature(model.forward).parameters
    candidates: list[Any] = [torch.randn(1, *size)]
    if "rcnn" in name or any(w in name for w in ("retinanet", "fcos", "ssd")):
        candidates = [[torch.rand(3, 128, 128)]]
    if "raft" in name:
        return {"image1": torch.rand(1, 3, 128, 128), "image2": torch.rand(1, 3, 128, 128)}
    candidates += [torch.randn(1, 3, 8, 112, 112), torch.randn(1, 3, 16, 224, 224)]
    error: Exception | None = None
    for value in candidates:
        try:
            with torch.no_grad():
                model(**{first: value})
            return {first: value}
        except Exception as e:
            error = error or e
    raise error or ValueError("nothing known of what it takes")
