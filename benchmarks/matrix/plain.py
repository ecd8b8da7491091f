"""Models of torch alone: its recurrent networks and transformers, networks on graphs, a DLRM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.matrix.builders import Inputs, normal, together, tokens
from benchmarks.processes import trainable
from benchmarks.processes.models import ModelCase

_WIDTH = 32


class Sentences(nn.Module):
    """Token ids, embedded, through a layer that takes ``[batch, length, width]``."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.tokens = nn.Embedding(trainable.VOCABULARY, _WIDTH)
        self.layer = layer

    def forward(self, input_ids: Tensor) -> Any:
        return self.layer(self.tokens(input_ids % trainable.VOCABULARY))


class MaskedAttention(nn.Module):
    """``nn.MultiheadAttention`` of a sentence with itself, some tokens hidden."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(_WIDTH, 4, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.arange(x.shape[1], device=x.device) > x.shape[1] - 3
        mask = hidden.expand(x.shape[0], -1)
        return self.attention(x, x, x, key_padding_mask=mask, average_attn_weights=False)


class EncoderDecoder(nn.Module):
    """``nn.Transformer``, causal in the decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.Transformer(_WIDTH, 4, 2, 2, 64, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], dtype=target.dtype)
        return self.transformer(source, target, tgt_mask=mask, tgt_is_causal=True)


class GraphConvolution(nn.Module):
    """A layer of Kipf and Welling (2017): sums over neighbours by ``index_add``."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.inner = nn.Linear(before, after)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        degree = x.new_ones(x.shape[0]).index_add(0, target, x.new_ones(target.shape[0]))
        weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
        messages = self.inner(x)
        return messages / degree.unsqueeze(1) + torch.zeros_like(messages).index_add(
            0, target, messages[source] * weight
        )


class GraphAttention(nn.Module):
    """A layer of Veličković et al. (2018): a softmax over each node's edges by scattering."""

    def __init__(self, before: int, after: int, heads: int = 2) -> None:
        super().__init__()
        self.inner = nn.Linear(before, heads * after)
        self.left, self.right = nn.Linear(after, 1), nn.Linear(after, 1)
        self.heads = heads

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        h = self.inner(x).unflatten(1, (self.heads, -1))
        scores = (self.left(h)[source] + self.right(h)[target]).squeeze(-1)
        scores = nn.functional.leaky_relu(scores, 0.2)
        index = target.unsqueeze(1).expand_as(scores)
        floor = x.new_full((x.shape[0], self.heads), float("-inf"))
        largest = floor.scatter_reduce(0, index, scores, "amax")
        weight = (scores - largest[target]).exp()
        total = x.new_zeros(x.shape[0], self.heads).scatter_add(0, index, weight)
        weight = weight / total[target].clamp(min=1e-12)
        found = torch.zeros_like(h).index_add(0, target, h[source] * weight.unsqueeze(-1))
        return found.flatten(1)


class OnGraph(nn.Module):
    """Two layers on one graph."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        return self.second(self.first(x, edges).relu(), edges)


def _graph(batch: int, length: int) -> dict[str, Any]:
    """``batch * length`` nodes, four edges from each."""
    nodes = batch * length
    return {"x": torch.randn(nodes, 8), "edges": torch.randint(0, nodes, (2, 4 * nodes))}


def _clicks(batch: int, length: int) -> dict[str, Any]:
    return {
        "features": torch.randn(batch, 8),
        "categories": torch.randint(0, 200, (batch, 3, 4)),
    }


def _case(family: str, name: str, make: Callable[[], nn.Module], inputs: Inputs) -> ModelCase:
    return ModelCase(f"torch/{name}", lambda: make().eval(), inputs, family=family)


def _lstm() -> nn.Module:
    return Sentences(nn.LSTM(_WIDTH, 32, 2, batch_first=True, bidirectional=True))


def _gru() -> nn.Module:
    return Sentences(nn.GRU(_WIDTH, 32, 2, batch_first=True))


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(_WIDTH, 4, 64, batch_first=True)
    return Sentences(nn.TransformerEncoder(layer, 2))


_WORDS = normal("x", 12, _WIDTH)

PLAIN = (
    _case("torch", "lstm", _lstm, tokens()),
    _case("torch", "gru", _gru, tokens()),
    _case(
        "torch", "transformer", EncoderDecoder,
        together(normal("source", 12, _WIDTH), normal("target", 10, _WIDTH)),
    ),
    _case("torch", "transformer_encoder", _encoder, tokens()),
    _case("torch", "multihead_attention", MaskedAttention, _WORDS),
    _case("torch", "unet", trainable.UNet, normal("images", 1, 32, 32)),
    _case(
        "graph", "gcn", lambda: OnGraph(GraphConvolution(8, 16), GraphConvolution(16, 4)), _graph
    ),
    _case("graph", "gat", lambda: OnGraph(GraphAttention(8, 8), GraphAttention(16, 4)), _graph),
    _case("recommender", "dlrm", trainable.Recommender, _clicks),
)  # fmt: skip
