"""Real architectures with random weights, and example inputs for them.

The libraries that define them (transformers, torchvision, timm) are imported when asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class ModelCase:
    """A model to run.

    Attributes:
        name: Short name.
        build: Makes the model, in eval mode, with random weights from torch's global generator.
        inputs: Makes keyword arguments for a batch and a sequence length (images ignore it).
        result: Picks what to compare from the model's output: one tensor, or all of it.
        dynamic_axis: Whether the sequence length may vary.
        family: What kind of model it is, where models are listed by kind.
    """

    name: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int, int], dict[str, Any]]
    result: Callable[[Any], Any] = lambda output: output
    dynamic_axis: bool = False
    family: str = ""


def _gpt2() -> torch.nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config()).eval()


def _llama() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    return LlamaForCausalLM(config).eval()


def _bert() -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig()).eval()


def _esm() -> torch.nn.Module:
    from transformers import EsmConfig, EsmModel

    config = EsmConfig(
        vocab_size=33,
        hidden_size=320,
        num_hidden_layers=6,
        num_attention_heads=20,
        intermediate_size=1280,
        pad_token_id=1,
        mask_token_id=32,
        position_embedding_type="rotary",
        token_dropout=True,
    )
    return EsmModel(config).eval()


def _vit() -> torch.nn.Module:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig()).eval()


def _resnet18() -> torch.nn.Module:
    from torchvision.models import resnet18

    return resnet18(weights=None).eval()


def _convnext_atto() -> torch.nn.Module:
    import timm

    return timm.create_model("convnext_atto", pretrained=False).eval()


def _tokens(vocabulary: int) -> Callable[[int, int], dict[str, torch.Tensor]]:
    return lambda batch, length: {"input_ids": torch.randint(4, vocabulary, (batch, length))}


def _protein(batch: int, length: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    return {"input_ids": torch.randint(4, 24, (batch, length)), "attention_mask": mask}


def _image(name: str) -> Callable[[int, int], dict[str, torch.Tensor]]:
    return lambda batch, length: {name: torch.randn(batch, 3, 224, 224)}


def _logits(output: Any) -> torch.Tensor:
    return output.logits


def _hidden(output: Any) -> torch.Tensor:
    return output.last_hidden_state


MODELS: Mapping[str, ModelCase] = {
    case.name: case
    for case in (
        ModelCase("gpt2", _gpt2, _tokens(50257), _logits, dynamic_axis=True),
        ModelCase("llama", _llama, _tokens(32000), _logits, dynamic_axis=True),
        ModelCase("bert", _bert, _tokens(30522), _hidden, dynamic_axis=True),
        ModelCase("esm", _esm, _protein, _hidden, dynamic_axis=True),
        ModelCase("vit", _vit, _image("pixel_values"), _hidden),
        ModelCase("resnet18", _resnet18, _image("x")),
        ModelCase("convnext_atto", _convnext_atto, _image("x")),
    )
}
