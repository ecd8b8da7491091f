"""A language model that generates text, compiled with MAX, beside eager PyTorch.

uv run examples/generate.py                random weights: prints token ids, downloads nothing
uv run examples/generate.py PATH [PROMPT]  a model and tokenizer saved in the folder PATH

Prints tokens as they are made, and the tokens a second of each one's second run. Exits with 1 if
the compiled model's float32 tokens are not eager's.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    TextStreamer,
)
from transformers.generation.streamers import BaseStreamer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class IdStreamer(BaseStreamer):
    """Prints the ids of generated tokens, int64 ``[batch]``, as they come."""

    def __init__(self) -> None:
        self._prompt = True

    def put(self, value: Tensor) -> None:
        if not self._prompt:
            print(*value.flatten().tolist(), end=" ", flush=True)
        self._prompt = False

    def end(self) -> None:
        self._prompt = True
        print()


def load(path: str | None, text: str, dtype: torch.dtype) -> tuple[Any, Tensor, BaseStreamer]:
    """A model, a prompt of int64 ids ``[1, length]``, and what prints tokens; without a path,
    random weights and a letter a token."""
    if path is None:
        config = LlamaConfig(
            hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8,
            num_key_value_heads=4, vocab_size=4096, eos_token_id=None,
        )  # fmt: skip
        model = LlamaForCausalLM(config).to(dtype)
        return model.eval(), torch.tensor([[100 + ord(c) % 1000 for c in text]]), IdStreamer()
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(path, local_files_only=True, dtype=dtype)
    prompt = tokenizer(text, return_tensors="pt").input_ids
    return model.eval(), prompt, TextStreamer(tokenizer, skip_prompt=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", help="folder with a saved language model")
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--cache", choices=["static", "dynamic"], default="static")
    given = parser.parse_args()

    torch.manual_seed(0)
    model, prompt, streamer = load(given.path, given.prompt, DTYPES[given.dtype])

    def generate(streamer: BaseStreamer | None = None) -> Tensor:
        return model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=given.new_tokens,
            do_sample=False,
            cache_implementation=given.cache,
            streamer=streamer,
        )

    def tokens_per_second() -> float:
        start = time.perf_counter()
        made = generate().shape[1] - prompt.shape[1]
        return made / (time.perf_counter() - start)

    expected = generate()
    eager = tokens_per_second()
    model.compile(backend="max")
    actual = generate(streamer)  # plans or compiles, or loads what an earlier run left
    compiled = tokens_per_second()

    print(f"tokens a second, eager {eager:9.1f}")
    print(f"tokens a second, max   {compiled:9.1f}")
    if given.dtype == "float32" and not torch.equal(actual, expected):
        print("FAILED: the compiled model's tokens are not eager's", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
