"""Interventions with nnsight, in eager PyTorch and with compiled blocks: prints what differs.

In a process of its own, since nnsight gives every object of Python a method.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import torch
from torch._dynamo.utils import counters

from torch_max_backend import PatchError, compiled, patch

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
        steps = [].save()
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


USES = [read, overwrite, invokes, source, cached, generated, gradients]


def differences() -> dict[str, float]:
    """By what is done, the largest difference from eager; infinity if there are other results."""
    eager, ours = language_model(), language_model()
    patch(ours, BLOCKS)
    pair, found = (wrapped(eager), wrapped(ours)), {}
    for use in USES:
        results = [use(model) for model in pair]
        same = [a.shape for a in results[0]] == [b.shape for b in results[1]]
        each = [(a - b).abs().max().item() for a, b in zip(*results, strict=True)] if same else []
        found[use.__name__] = max(each, default=float("inf"))
    return found


@torch.no_grad()
def compiles() -> dict[str, int]:
    """What Dynamo counts when values inside and between blocks are read, several times."""
    torch._dynamo.reset()
    counters.clear()
    model = language_model()
    patch(model, BLOCKS)
    found = wrapped(model)
    for _ in range(2):
        read(found)
        with found.trace(X, use_cache=False):
            found.transformer.h[2].output.save()
    return {
        "graphs": counters["stats"]["unique_graphs"],
        "breaks": sum(counters["graph_break"].values()),
    }


def refused() -> str:
    """What is said of a model that is wrapped already."""
    model = language_model()
    wrapped(model)
    try:
        patch(model, BLOCKS)
    except PatchError as e:
        return str(e)
    return ""


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({**differences(), **compiles(), "refused": refused()}))
