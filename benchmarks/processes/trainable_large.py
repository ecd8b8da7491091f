"""Networks of the sizes that are trained in practice, with random weights and random data: what a
step costs does not depend on what they learn.

They train as their libraries build them, dropout included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from benchmarks.processes.trainable import TrainingCase, UNet


def _gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)).train()


def _bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    return BertForSequenceClassification(BertConfig(num_labels=2)).train()


def _resnet18() -> nn.Module:
    from torchvision.models import resnet18

    return resnet18(weights=None).train()


def _tokens(vocabulary: int, length: int, classes: int = 0) -> Callable[..., tuple[Tensor, ...]]:
    def batch(count: int, chance: Generator) -> tuple[Tensor, ...]:
        tokens = torch.randint(4, vocabulary, (count, length), generator=chance)
        if not classes:
            return (tokens,)
        return tokens, torch.randint(0, classes, (count,), generator=chance)

    return batch


def _pictures(count: int, chance: Generator) -> tuple[Tensor, Tensor]:
    images = torch.randn(count, 3, 224, 224, generator=chance)
    return images, torch.randint(0, 1000, (count,), generator=chance)


def _scans(count: int, chance: Generator) -> tuple[Tensor, Tensor]:
    images = torch.randn(count, 1, 128, 128, generator=chance)
    return images, (images > 0).float()


def _next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    logits = model(input_ids=tokens).logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def _classified(model: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(input_ids=tokens).logits, labels)


def _picture_class(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(images), labels)


def _marked(model: nn.Module, images: Tensor, masks: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(images), masks)


def _autocast(case: TrainingCase) -> TrainingCase:
    """The case with what autocast takes in bfloat16; parameters and their updates in float32."""

    def loss(model: nn.Module, *batch: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return case.loss(model, *batch)

    return dataclasses.replace(case, loss=loss)


LARGE_CASES = {
    "gpt2_2x64": TrainingCase(_gpt2, _tokens(50257, 64), _next_token, 2, 1e-4),
    "bert_8x64": TrainingCase(_bert, _tokens(30522, 64, 2), _classified, 8, 2e-5),
    "resnet18_4": TrainingCase(_resnet18, _pictures, _picture_class, 4, 1e-3),
    "unet_2x128": TrainingCase(lambda: UNet(32), _scans, _marked, 2, 1e-3),
}

AUTOCAST_CASES = {
    f"{name}_bf16": _autocast(LARGE_CASES[name]) for name in ("gpt2_2x64", "bert_8x64")
}
