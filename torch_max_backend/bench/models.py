"""Models by name, with random weights of one seed, and arguments for them."""

from __future__ import annotations

import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torch_max_backend.bench.spec import Spec
from torch_max_backend.errors import OptionError

_SEED = 0
# Of architectures whose configuration has no sizes, or too large ones: ESM-2 of 8 million
# parameters, and what runs anywhere.
_SIZES: Mapping[str, Mapping[str, Any]] = {
    "esm": {
        "vocab_size": 33,
        "hidden_size": 320,
        "num_hidden_layers": 6,
        "num_attention_heads": 20,
        "intermediate_size": 1280,
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "mask_token_id": 32,
        "pad_token_id": 1,
        "emb_layer_norm_before": False,
    },
    "llama": {
        "vocab_size": 32000,
        "hidden_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "intermediate_size": 2816,
    },
}


@dataclass
class Subject:
    """A model and what it is called with.

    Attributes:
        model: The model, in evaluation mode.
        args: Positional arguments.
        kwargs: Arguments by name.
        items: What a call works on: tokens without padding, images, or rows.
        unit: The name of such an item.
    """

    model: torch.nn.Module
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    items: int = 1
    unit: str = "items"

    def call(self, function: Any) -> Any:
        """Call the model, or what stands for it."""
        return function(*self.args, **self.kwargs)


def load(spec: Spec) -> Subject:
    """The model of a measurement, with the same weights and arguments in every process.

    ``file.py:function`` returns a model and its arguments (a tensor, a tuple, or a dict by name);
    ``timm/NAME`` and ``torchvision/NAME`` are of those libraries; anything else is a local folder
    of Hugging Face, with its weights, or the name of one of transformers' architectures
    (``gpt2``, ``bert``, ``esm``), of its default size.

    Raises:
        OptionError: There is no such model, or a library that it needs is not installed.
    """
    torch.manual_seed(_SEED)
    try:
        subject = _load(spec)
    except ImportError as e:
        raise OptionError(f"{spec.model} needs a library that is not installed: {e}") from e
    dtype = getattr(torch, spec.dtype)
    subject.model = subject.model.to(dtype).to(spec.device).eval()
    cast = _Cast(dtype, spec.device)
    subject.args = tuple(cast(a) for a in subject.args)
    subject.kwargs = {k: cast(v) for k, v in subject.kwargs.items()}
    return subject


@dataclass(frozen=True)
class _Cast:
    dtype: torch.dtype
    device: str

    def __call__(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        value = value.to(self.device)
        return value.to(self.dtype) if value.is_floating_point() else value


def _load(spec: Spec) -> Subject:
    file, _, function = spec.model.rpartition(":")
    if file.endswith(".py"):
        return _of_file(Path(file), function, spec)
    library, _, name = spec.model.partition("/")
    if library == "timm" and name:
        return _of_timm(name, spec)
    if library == "torchvision" and name:
        return _of_torchvision(name, spec)
    return _of_transformers(spec)


def _of_file(file: Path, function: str, spec: Spec) -> Subject:
    if not file.is_file():
        raise OptionError(f"There is no file {file}.")
    made = runpy.run_path(str(file)).get(function)
    if made is None:
        raise OptionError(f"{file} has no function {function!r}.")
    model, inputs = made()
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else () if named else (inputs,)
    sizes = [len(v) for v in (*args, *named.values()) if isinstance(v, torch.Tensor) and v.dim()]
    return Subject(model, args, named, items=sizes[0] if sizes else 1, unit="rows")


def _of_timm(name: str, spec: Spec) -> Subject:
    import timm

    if not timm.is_model(name):
        raise OptionError(f"timm has no model {name!r}.")
    model = timm.create_model(name, pretrained=False)
    image = torch.randn(spec.batch, *model.default_cfg["input_size"])
    return Subject(model, (image,), items=spec.batch, unit="images")


def _of_torchvision(name: str, spec: Spec) -> Subject:
    import torchvision

    if name not in torchvision.models.list_models():
        raise OptionError(f"torchvision has no model {name!r}.")
    model = torchvision.models.get_model(name, weights=None)
    return Subject(model, (torch.randn(spec.batch, 3, 224, 224),), items=spec.batch, unit="images")


def _of_transformers(spec: Spec) -> Subject:
    import transformers
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING,
        MODEL_FOR_MASKED_LM_MAPPING,
        MODEL_MAPPING,
    )

    folder = Path(spec.model)
    saved = (folder / "config.json").is_file()
    try:
        kind = transformers.AutoConfig
        sizes = _SIZES.get(spec.model, {})
        config = kind.from_pretrained(folder) if saved else kind.for_model(spec.model, **sizes)
    except ValueError as e:
        raise OptionError(
            f"There is no model {spec.model!r}.",
            "Name a file and a function (model.py:make), a folder of Hugging Face, an architecture "
            "of transformers, or a model of timm/ or torchvision/.",
        ) from e
    for mapping in (MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING):
        if type(config) in mapping:
            made = mapping[type(config)]
            break
    else:
        raise OptionError(f"transformers has no model for {type(config).__name__} alone.")
    config.use_cache = spec.mode == "generate"
    model = made.from_pretrained(folder, config=config) if saved else made(config)
    if model.main_input_name == "pixel_values":
        size = getattr(config, "image_size", 224)
        sides = size if isinstance(size, (list, tuple)) else (size, size)
        image = torch.randn(spec.batch, getattr(config, "num_channels", 3), *sides)
        return Subject(model, (), {"pixel_values": image}, spec.batch, "images")
    # Small numbers are special tokens in many vocabularies.
    first, size = min(5, config.vocab_size - 1), (spec.batch, spec.length)
    tokens = torch.randint(first, config.vocab_size, size)
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    return Subject(model, (), inputs, tokens.numel(), "tokens")
