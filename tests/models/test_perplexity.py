"""A language model that has learnt some text is as good compiled as it is in eager PyTorch."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cache
from pydoc_data.topics import topics

import pytest
import torch
from torch import Tensor, nn

from tests.support.groups import compile_group

pytestmark = compile_group("perplexity", weight=2)

_CHARACTERS = 128
_LENGTH = 64
_BATCH = 16
_STEPS = 120
_HELD_OUT = 24
# Largest difference from eager's perplexity, relative to it.
_TOLERANCE = 1e-3

aten = torch.ops.aten


def _text() -> Tensor:
    """int64 characters ``[rows, _LENGTH + 1]`` of the language reference that ships with Python."""
    text = "".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore")
    rows = len(text) // (_LENGTH + 1)
    return torch.tensor(list(text[: rows * (_LENGTH + 1)])).view(rows, _LENGTH + 1)


@cache
def _trained() -> tuple[nn.Module, Tensor]:
    """A float32 model that has seen other rows than the ones returned beside it."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    rows = _text()
    rows = rows[torch.randperm(len(rows))]
    held_out, rows = rows[:_HELD_OUT], rows[_HELD_OUT:]
    config = LlamaConfig(
        vocab_size=_CHARACTERS,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=_LENGTH,
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(_STEPS):
        batch = rows[step * _BATCH : (step + 1) * _BATCH]
        loss = _loss(model(input_ids=batch[:, :-1], use_cache=False).logits, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval().requires_grad_(False), held_out


def _loss(logits: Tensor, rows: Tensor) -> Tensor:
    """The mean cross entropy of each next character."""
    return nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())


class _Quantized(nn.Module):
    """A linear layer without bias, of int8 weights ``[out, in]`` with a scale a row."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.float()
        scale = weight.abs().amax(1) / 127
        self.register_buffer("weight", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(linear.weight.dtype))


class _Widened(_Quantized):
    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)
        return (rows @ self.weight.T.to(x.dtype) * self.scale).unflatten(0, x.shape[:-1])


class _Packed(_Quantized):
    def forward(self, x: Tensor) -> Tensor:
        product = aten._weight_int8pack_mm(x.flatten(0, -2), self.weight, self.scale)
        return product.unflatten(0, x.shape[:-1])


def _quantized(model: nn.Module, layer: type[_Quantized]) -> nn.Module:
    for name, linear in list(model.named_modules()):
        if isinstance(linear, nn.Linear):
            model.set_submodule(name, layer(linear))
    return model


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    # Small operators on several threads wait long for each other where other tests hold a core.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def _perplexity(model: nn.Module, rows: Tensor) -> float:
    with torch.no_grad():
        return _loss(model(input_ids=rows[:, :-1], use_cache=False).logits, rows).exp().item()


@pytest.mark.parametrize("layer", [None, _Widened, _Packed])
def test_perplexity_is_eagers(layer: type[_Quantized] | None) -> None:
    """In bfloat16, with weights of 16 bits or of 8."""
    trained, rows = _trained()
    model = copy.deepcopy(trained).bfloat16()
    if layer is not None:
        model = _quantized(model, layer)
    expected = _perplexity(model, rows)
    model.compile(backend="max", fullgraph=True, options={"fallback": "error"})
    actual = _perplexity(model, rows)
    assert abs(actual - expected) < _TOLERANCE * expected
    # It has learnt something, and rounding its weights took little of that.
    truth = _perplexity(trained, rows)
    assert truth < 16
    assert abs(actual - truth) < 0.02 * truth
