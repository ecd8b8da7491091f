"""Small networks of the usual kinds, and synthetic data that they can learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

VOCABULARY, LENGTH = 48, 32
CLASSES = 10


@dataclass(frozen=True)
class TrainingCase:
    """A network to train.

    Attributes:
        build: Makes it, with random weights from torch's global generator.
        batch: Makes a batch of so many samples.
        loss: Of the network and a batch: 0-d.
        size: Samples of a batch.
        rate: The learning rate, of AdamW.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[int, Generator], tuple[Tensor, ...]]
    loss: Callable[..., Tensor]
    size: int = 16
    rate: float = 2e-3


class Convolutional(nn.Module):
    """Of MNIST's shape, with batch norm; its dropout lets everything through."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.drop = nn.Dropout(0.0)
        self.head = nn.Linear(32 * 7 * 7, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.drop(self.features(images).flatten(1)))


class Attention(nn.Module):
    """Self-attention of ``[batch, length, width]``."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, rotary: bool = False):
        super().__init__()
        self.heads, self.causal, self.rotary = heads, causal, rotary
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        if self.rotary:
            query, key = _rotated(query), _rotated(key)
        found = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(found.transpose(1, 2).flatten(2))


def _rotated(x: Tensor) -> Tensor:
    """Rotary positions (Su et al., 2021), pairs half a head apart."""
    half = x.shape[-1] // 2
    steps = torch.arange(half, device=x.device) * (-math.log(10000.0) / half)
    angles = torch.arange(x.shape[-2], device=x.device).unsqueeze(1) * steps.exp()
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Block(nn.Module):
    """A layer of a transformer, normalized first."""

    def __init__(self, width: int, heads: int, *, causal: bool = False, rotary: bool = False):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal=causal, rotary=rotary)
        self.inner = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        return x + self.inner(self.between(x))


class Decoder(nn.Module):
    """GPT-2's architecture, its head tied to the embedding."""

    def __init__(self, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.places = nn.Embedding(LENGTH, width)
        self.blocks = nn.Sequential(*[Block(width, 4, causal=True) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        # It is the head as well.
        nn.init.normal_(self.tokens.weight, std=0.05)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.tokens(tokens) + self.places(places))
        return self.norm(x) @ self.tokens.weight.mT


class Encoder(nn.Module):
    """ESM-2's architecture: rotary positions, a head for masked tokens."""

    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY + 1, width)
        self.blocks = nn.Sequential(*[Block(width, 4, rotary=True) for _ in range(layers)])
        self.head = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)
        )
        self.out = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.head(self.blocks(self.tokens(tokens))))


class VisionTransformer(nn.Module):
    """Patches of 8 x 8 of images of 32 x 32, and a token for the class."""

    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, 8)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(layers)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).mT
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.blocks(x)[:, 0])


class UNet(nn.Module):
    """Two levels down and up again by transposed convolutions."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = _double(1, width), _double(width, 2 * width)
        self.bottom = _double(2 * width, 4 * width)
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.left_second, self.left_first = _double(4 * width, 2 * width), _double(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        first = self.first(images)
        second = self.second(F.max_pool2d(first, 2))
        x = self.bottom(F.max_pool2d(second, 2))
        x = self.left_second(torch.cat([self.up_second(x), second], 1))
        x = self.left_first(torch.cat([self.up_first(x), first], 1))
        return self.out(x)


def _double(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1), nn.GroupNorm(4, after), nn.ReLU(),
    )  # fmt: skip


class Recurrent(nn.Module):
    """A language model of one LSTM."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, 2 * width, batch_first=True)
        self.out = nn.Linear(2 * width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.lstm(self.tokens(tokens))[0])


class Recommender(nn.Module):
    """DLRM's architecture: bags of categories and dense features, and the products of each two."""

    def __init__(self, tables: int = 3, rows: int = 200, width: int = 16) -> None:
        super().__init__()
        bags = [nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)]
        self.bags = nn.ModuleList(bags)
        self.dense = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.over = nn.Sequential(nn.Linear(width + pairs, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, features: Tensor, categories: Tensor) -> Tensor:
        dense = self.dense(features)
        found = [bag(categories[:, i]) for i, bag in enumerate(self.bags)]
        vectors = torch.stack([dense, *found], 1)
        products = (vectors @ vectors.mT)[:, self.pairs[0], self.pairs[1]]
        return self.over(torch.cat([dense, products], 1)).squeeze(1)


def _images(channels: int, side: int) -> Callable[[int, Generator], tuple[Tensor, Tensor]]:
    """A pattern for each class, in noise."""
    patterns = torch.randn(CLASSES, channels, side, side, generator=Generator().manual_seed(0))

    def batch(count: int, chance: Generator) -> tuple[Tensor, Tensor]:
        labels = torch.randint(0, CLASSES, (count,), generator=chance)
        noise = torch.randn(count, channels, side, side, generator=chance)
        return patterns[labels] + 2 * noise, labels

    return batch


def _sequences(count: int, chance: Generator) -> tuple[Tensor]:
    """Each token is the one before times 5 plus one of four steps, the same all along."""
    steps = torch.randint(1, 5, (count, 1), generator=chance)
    tokens = [torch.randint(0, VOCABULARY, (count, 1), generator=chance)]
    for _ in range(LENGTH - 1):
        tokens.append((tokens[-1] * 5 + steps) % VOCABULARY)
    return (torch.cat(tokens, 1),)


def _masked(count: int, chance: Generator) -> tuple[Tensor, Tensor]:
    """Sequences of period 4, an eighth of their tokens hidden; -100 marks the others' labels."""
    period = torch.randint(0, VOCABULARY, (count, 4), generator=chance)
    tokens = period.repeat(1, LENGTH // 4)
    hidden = torch.rand(count, LENGTH, generator=chance) < 0.125
    return tokens.masked_fill(hidden, VOCABULARY), tokens.masked_fill(~hidden, -100)


def _discs(count: int, chance: Generator) -> tuple[Tensor, Tensor]:
    """Discs in noise, and where they are."""
    places = torch.arange(32.0)
    x, y, r = torch.rand(3, count, 1, 1, 1, generator=chance) * torch.tensor(
        [32.0, 32.0, 8.0]
    ).reshape(3, 1, 1, 1, 1)
    disc = ((places - x) ** 2 + (places.unsqueeze(1) - y) ** 2 < (r + 4) ** 2).float()
    return disc + torch.randn(count, 1, 32, 32, generator=chance), disc


def _clicks(count: int, chance: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Features and categories, and a label that both decide."""
    features = torch.randn(count, 8, generator=chance)
    categories = torch.randint(0, 200, (count, 3, 4), generator=chance)
    score = features[:, :4].sum(1) + (categories % 7 < 3).float().sum((1, 2)) - 5
    return features, categories, (score > 0).float()


def _classified(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(images), labels)


def _next_token(model: nn.Module, tokens: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def _hidden_tokens(model: nn.Module, tokens: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten(), ignore_index=-100)


def _marked(model: nn.Module, *batch: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(*batch[:-1]), batch[-1])


CASES = {
    "cnn": TrainingCase(Convolutional, _images(1, 28), _classified, 32),
    "gpt2": TrainingCase(Decoder, _sequences, _next_token),
    "vit": TrainingCase(VisionTransformer, _images(3, 32), _classified, 32, 1e-3),
    "esm2": TrainingCase(Encoder, _masked, _hidden_tokens, 32),
    "unet": TrainingCase(UNet, _discs, _marked, 8),
    "lstm": TrainingCase(Recurrent, _sequences, _next_token, 16, 5e-3),
    "dlrm": TrainingCase(Recommender, _clicks, _marked, 128, 5e-3),
}
