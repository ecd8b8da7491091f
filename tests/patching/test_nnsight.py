"""Interventions with nnsight on models whose blocks are compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters

from torch_max_backend import PatchError, compiled, patch

pytest.importorskip("nnsight")
pytestmark = [
    pytest.mark.xdist_group("nnsight"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

BLOCKS = {"transformer.h.*": compiled()}


def language_model() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=6,
        n_embd=32,
        n_head=4,
        vocab_size=50,
        n_positions=32,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).eval()


def wrapped(model: Any) -> Any:
    from nnsight import TransformersModel
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(50)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", eos_token="w0")
    return TransformersModel(model, tokenizer=tokenizer, task="text-generation")


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Any, Any]]:
    """A model in eager PyTorch and the same with compiled blocks, both wrapped."""
    torch._dynamo.reset()
    eager, ours = language_model(), language_model()
    patch(ours, BLOCKS)
    yield wrapped(eager), wrapped(ours)
    torch._dynamo.reset()


X = torch.tensor([[5, 8, 13, 21, 34, 2, 3, 7]])
Y = torch.tensor([[1, 4, 9, 16, 25, 36, 49, 7]])


def read(model: Any) -> list[Any]:
    with torch.no_grad(), model.trace(X, use_cache=False):
        inside = model.transformer.h[1].mlp.output.save()
        hidden = model.transformer.h[2].output.save()
        logits = model.lm_head.output.save()
    return [inside, hidden, logits]


def overwrite(model: Any) -> list[Any]:
    with torch.no_grad(), model.trace(X, use_cache=False):
        model.transformer.h[1].output[:, -1] = 0
        model.transformer.h[3].attn.output[0][:] = 0
        model.transformer.h[4].output = model.transformer.h[4].output * 0.5
        logits = model.lm_head.output.save()
    return [logits]


def invokes(model: Any) -> list[Any]:
    with torch.no_grad(), model.trace(use_cache=False) as tracer:
        with tracer.invoke(X):
            first = model.transformer.h[2].output.save()
        with tracer.invoke(Y):
            model.transformer.h[2].output[:] = 0
            second = model.lm_head.output.save()
    return [first, second]


def source(model: Any) -> list[Any]:
    with torch.no_grad(), model.trace(X, use_cache=False):
        normed = model.transformer.h[5].source.self_ln_1_0.output.save()
        logits = model.lm_head.output.save()
    return [normed, logits]


def cached(model: Any) -> list[Any]:
    with torch.no_grad(), model.trace(X, use_cache=False) as tracer:
        cache = tracer.cache()
    return [cache["model.transformer.h.3.mlp"].output, cache["model.transformer.h.3"].output]


def generated(model: Any) -> list[Any]:
    with torch.no_grad(), model.generate(X, max_new_tokens=4, do_sample=False) as tracer:
        steps = list().save()  # noqa: C408  nnsight looks for a name
        for _ in tracer.iter[:]:
            steps.append(model.transformer.h[2].output.clone())
    with torch.no_grad(), model.generate(X, max_new_tokens=4, do_sample=False) as tracer:
        for _ in tracer.iter[2]:
            inside = model.transformer.h[3].mlp.output.save()
    return [*steps, inside]


def gradients(model: Any) -> list[Any]:
    with model.trace(X, use_cache=False):
        hidden = model.transformer.h[2].output
        loss = model.lm_head.output.square().mean()
        with loss.backward():
            grad = hidden.grad.save()
    return [grad]


@pytest.mark.parametrize(
    "use",
    [read, overwrite, invokes, source, cached, generated, gradients],
    ids=lambda f: f.__name__,
)
def test_interventions_see_and_change_what_they_do_in_eager(pair: Any, use: Any) -> None:
    eager, ours = map(use, pair)
    assert len(eager) == len(ours)
    for one, other in zip(eager, ours, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_equal_blocks_are_one_compile_and_run_compiled_in_a_trace() -> None:
    torch._dynamo.reset()
    counters.clear()
    model = language_model()
    patch(model, BLOCKS)
    found = wrapped(model)
    read(found)
    with found.trace(X, use_cache=False):
        found.transformer.h[2].output.save()
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters["graph_break"]


def test_a_wrapped_model_is_not_patched() -> None:
    model = language_model()
    wrapped(model)
    with pytest.raises(PatchError, match="Patch the model first"):
        patch(model, BLOCKS)
