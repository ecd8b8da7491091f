"""Sentence embeddings by BERT: one compile serves sentences of every length.

uv run examples/bert_embeddings.py                  random weights, nothing is downloaded
uv run examples/bert_embeddings.py PATH [TEXT ...]  a model and tokenizer saved in the folder PATH

Exits with 1 if the compiled model disagrees with eager.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import nn
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

from torch_max_backend import max_backend

TEXTS = [
    "A cat sleeps on the sofa.",
    "On the couch, a kitten is taking a nap after lunch.",
    "Interest rates rose again.",
]
TOLERANCE = 1e-4


class Embedder(nn.Module):
    """The mean of BERT's last hidden states, of length 1."""

    def __init__(self, bert: nn.Module) -> None:
        super().__init__()
        self.bert = bert

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=input_ids).last_hidden_state
        return nn.functional.normalize(hidden.mean(1), dim=-1)


def load(path: str | None, texts: list[str]) -> tuple[nn.Module, list[torch.Tensor]]:
    """The model and each text's token ids; without a path, random weights and a letter a token."""
    if path is None:
        config = BertConfig(
            hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
        )
        ids = [torch.tensor([[1000 + ord(c) % 1000 for c in text]]) for text in texts]
        return BertModel(config), ids
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = AutoModel.from_pretrained(path, local_files_only=True)
    return model, [tokenizer(text, return_tensors="pt").input_ids for text in texts]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", nargs="?", help="folder with a saved BERT-like model")
    parser.add_argument("texts", nargs="*", help="sentences to embed")
    given = parser.parse_args()
    texts = given.texts or TEXTS

    torch.manual_seed(0)
    bert, batches = load(given.path, texts)
    model = Embedder(bert).eval()
    compiled = torch.compile(model, backend=max_backend, dynamic=True)

    embeddings = []
    error = 0.0
    with torch.no_grad():
        for ids in batches:
            start = time.perf_counter()
            embeddings.append(compiled(ids)[0])
            took = time.perf_counter() - start
            difference = (embeddings[-1] - model(ids)[0]).abs().max().item()
            error = max(error, difference)
            print(f"{ids.shape[1]:3d} tokens {took:8.3f} s   off eager by {difference:.1e}")

    print("cosine similarity:")
    table = torch.stack(embeddings)
    for row, text in zip(table @ table.T, texts, strict=True):
        print("  " + " ".join(f"{v:5.2f}" for v in row.tolist()) + f"  {text}")
    if not error <= TOLERANCE:
        print("FAILED: the compiled model disagrees with eager", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
