"""Random modules of a seed: parts that depend on modes, on state, and on gradients."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

# Every value of a module is [batch, steps, WIDTH].
WIDTH = 6
_WORDS = 9


@torch.library.custom_op("random_modules::unknown", mutates_args=())
def unknown(x: Tensor, y: Tensor) -> Tensor:
    """An operator that the backend leaves to torch: the graph is cut there."""
    return x * 2 + y.sum()


@unknown.register_fake
def _(x: Tensor, y: Tensor) -> Tensor:
    return torch.empty_like(x * 2 + y.sum())


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.dtypes, ctx.shape = [t.dtype for t in inputs], inputs[1].shape


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    first, second = ctx.dtypes
    return (grad * 2).to(first), grad.sum().to(second).expand(ctx.shape)


unknown.register_autograd(_gradient, setup_context=_keep)

# Of a module, two values and a number, the next value.
Part = Callable[["RandomModule", Tensor, Tensor, int], Tensor]


class RandomModule(nn.Module):
    """A chain of random parts, which may read any value before them.

    Called with two tensors ``[batch, steps, WIDTH]``, integers ``[batch, steps]`` below 9, and a
    number; returns some of the values in a list, a tuple, a dict, or one alone.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        rng, self.generator = random.Random(seed), torch.Generator().manual_seed(seed)
        self.w = nn.ParameterList([self._made(WIDTH, WIDTH), self._made(WIDTH, WIDTH)])
        self.v = nn.ParameterList([self._made(WIDTH), self._made(WIDTH)])
        self.w[1].requires_grad_(rng.random() < 0.7)
        self.table = nn.Embedding(_WORDS, WIDTH, _weight=self._made(_WORDS, WIDTH))
        self.norm = nn.BatchNorm1d(WIDTH)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("cache", torch.zeros(2, 3, WIDTH))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.parts: list[tuple[Part, int, int, int]] = []
        known = 3
        for _ in range(rng.randint(2, 10)):
            first = known - 1 if rng.random() < 0.5 else rng.randrange(known)
            number = rng.randrange(24)
            self.parts.append((rng.choice(_PARTS), first, rng.randrange(known), number))
            known += 1
        self.results = [rng.randrange(max(known - 4, 0), known) for _ in range(rng.randint(1, 3))]
        self.results += [rng.randrange(known)] * (rng.random() < 0.3)
        self.form = rng.choice(("list", "tuple", "dict", "one"))

    def _made(self, *shape: int) -> nn.Parameter:
        return nn.Parameter(torch.randn(shape, generator=self.generator) / 2)

    def forward(self, x: Tensor, y: Tensor, words: Tensor, scale: float) -> Any:
        """See the class."""
        values = [x, y * scale, self.table(words)]
        for part, first, second, number in self.parts:
            values.append(part(self, values[first], values[second], number))
        results = [values[i] for i in self.results]
        if self.form == "one":
            return results[0]
        if self.form == "dict":
            return {"scale": scale, "results": results, "none": None}
        return tuple(results) if self.form == "tuple" else results

    def __str__(self) -> str:
        lines = [f"{p.__name__} of v{a}, v{b}, {n}" for p, a, b, n in self.parts]
        numbered = [f"v{i} = {line}" for i, line in enumerate(lines, 3)]
        return "\n".join([*numbered, f"return {self.results} as {self.form}"])


def _product(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return F.linear(x.float(), m.w[n % 2], m.v[0] if n % 3 else None)


def _tied(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return torch.tanh(x.float() @ m.w[0]) @ m.w[0].t()


def _attention(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return F.scaled_dot_product_attention(x, x, x, is_causal=bool(n % 2))


def _layer_norm(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return F.layer_norm(x.float(), (WIDTH,), m.v[0], m.v[1])


def _batch_norm(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return m.norm(x.float().transpose(1, 2)).transpose(1, 2)


def _convolution(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return F.conv1d(x.float().transpose(1, 2), m.w[n % 2][:, :, None]).transpose(1, 2)


def _function(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return (torch.relu, F.gelu, torch.tanh, torch.sin, torch.neg, F.silu)[n % 6](x)


def _both(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return (torch.add, torch.mul, torch.sub, torch.maximum)[n % 4](x, y)


def _reduced(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return (x - x.mean(-1, keepdim=True), x.softmax(n % 3), x.sum(n % 3, True).expand_as(x))[n % 3]


def _moved(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    turned = x.transpose(1, 2).contiguous().transpose(1, 2)
    halves = torch.cat(x.chunk(2, -1)[::-1], -1)
    return (turned, halves, x.flip(n % 3), x[torch.arange(x.shape[0]).flip(0)])[n % 4]


def _view(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return (x[:], x.transpose(0, 1).transpose(0, 1), x.detach(), x.expand_as(x))[n % 4]


def _chosen(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return torch.where(x > 0, x, y) if n % 2 else x.masked_fill(y > 0.5, 0.25)


def _written(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    x = x.clone()
    x.add_(y)
    x[..., n % WIDTH].mul_(2)
    x[:, 0] = y[:, 0]
    return x


def _argument_written(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return x.mul_(0.5) if n % 3 == 0 else x


def _running_mean(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    x = x * m.mean.cos().to(x.dtype)
    with torch.no_grad():
        m.mean.mul_(0.9).add_(x.float().mean((0, 1)), alpha=0.1)
        m.calls += 1
    return x + m.mean.to(x.dtype)


def _cache(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    with torch.no_grad():
        row = x.float().mean((0, 1))[None, None].expand(2, 1, WIDTH)
        m.cache.index_copy_(1, torch.tensor([n % 3]), row)
    return x + m.cache.sum((0, 1)).to(x.dtype)


def _without_gradients(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    with torch.no_grad():
        z = x * 2 + 1
    return z + y


def _some_gradients(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    first, second, third = x.split(2, -1)
    return torch.cat([first.detach(), second * 2, third], -1)


def _autocast_off(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        return x.float() @ m.w[0]


def _autocast(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return x.float() @ m.w[0]


def _cast(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return x.to((torch.float32, torch.float64, torch.bfloat16)[n % 3])


def _checkpointed(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return checkpoint(lambda z: torch.tanh(z.float() @ m.w[0]) * 2, x, use_reentrant=False)


def _graph_break(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    torch._dynamo.graph_break()
    return x


def _left_to_torch(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return unknown(x, y) + (unknown(y, x) if n % 2 else 0)


def _by_mode(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    x = F.dropout(x, 0.0, m.training) * (2 if m.training else 3)
    x = x + 1 if torch.is_grad_enabled() else x - 1
    return x * 2 if y.requires_grad else x


def _by_sizes(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    return x * x.shape[0] + y.shape[1]


def _by_data(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    if n % 2:
        return x + (y > 0).nonzero().shape[0]
    return x * float((y.detach() > 0).float().mean().item() > 0.4)


def _branches(m: RandomModule, x: Tensor, y: Tensor, n: int) -> Tensor:
    # Its gradient in eager PyTorch is traced, and fails under a function of autograd's own.
    operands = (x.detach(), y.detach().to(x.dtype).clone())
    # Not a sum, whose sign rounding would decide behind a norm.
    return torch.cond(x[0, 0, 0] > 0, lambda a, b: a.sin() + b, lambda a, b: a * 2 - b, operands)


_PARTS: tuple[Part, ...] = (
    _product, _tied, _attention, _layer_norm, _batch_norm, _convolution, _function, _both, _reduced,
    _moved, _view, _chosen, _written, _argument_written, _running_mean, _cache, _without_gradients,
    _some_gradients, _autocast_off, _autocast, _cast, _checkpointed, _graph_break, _left_to_torch,
    _by_mode, _by_sizes, _by_data, _branches,
)  # fmt: skip
