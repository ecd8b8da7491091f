"""Random graphs of a seed, made by running them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

DTYPES = (torch.float32, torch.float32, torch.int64, torch.bool)
# Those of which kernels for a test would take minutes to build.
MORE_DTYPES = (torch.float64, torch.int32, torch.bfloat16, torch.float16)
SIZES = (0, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 33)


@dataclass
class Step:
    """One operation of a random graph: a function of earlier values, by number."""

    text: str
    function: Callable[..., torch.Tensor]
    operands: tuple[int, ...]


@dataclass
class Graph:
    """A random graph.

    Attributes:
        arguments: What it is called with.
        steps: Its operations.
        outputs: The values that it returns.
        writes: Pairs of an argument and the value that is copied to it in the end.
    """

    arguments: list[torch.Tensor]
    steps: list[Step] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    writes: list[tuple[int, int]] = field(default_factory=list)

    def __call__(self, *arguments: torch.Tensor) -> list[torch.Tensor]:
        values = list(arguments)
        for step in self.steps:
            values.append(step.function(*(values[i] for i in step.operands)))
        if not self.writes:
            return [values[i] for i in self.outputs]
        # AOTAutograd's graphs end so: what is written and returned is there before any write.
        results = [values[i].clone() for i in self.outputs]
        written = [values[value].clone() for _, value in self.writes]
        for (argument, _), value in zip(self.writes, written, strict=True):
            arguments[argument].copy_(value)
        return results

    def __str__(self) -> str:
        lines = [
            f"v{i} = {t.dtype}{list(t.shape)} strides {t.stride()}"
            for i, t in enumerate(self.arguments)
        ]
        at = len(lines)
        for i, step in enumerate(self.steps):
            lines.append(f"v{at + i} = {step.text} of {', '.join(f'v{o}' for o in step.operands)}")
        lines += [f"v{a}.copy_(v{v})" for a, v in self.writes]
        return "\n".join([*lines, f"return {', '.join(f'v{o}' for o in self.outputs)}"])


def graph_of(seed: int, dtypes: Sequence[torch.dtype] = DTYPES, most: int = 14) -> Graph:
    """The random graph of a seed, of at most so many operations."""
    return _Maker(random.Random(seed), dtypes, most).made()


class _Maker:
    """Makes a graph by running it: an operation that eager PyTorch refuses is left out."""

    def __init__(self, rng: random.Random, dtypes: Sequence[torch.dtype], most: int) -> None:
        self.rng, self.dtypes, self.most = rng, dtypes, most
        self.values: list[torch.Tensor] = []

    def made(self) -> Graph:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            self.values.append(self._argument())
        graph = Graph(list(self.values))
        for _ in range(rng.randint(1, self.most)):
            found = self._step()
            if found is not None:
                graph.steps.append(found[0])
                self.values.append(found[1])
        first = len(graph.arguments)
        numbers = range(len(self.values))
        late = [i for i in numbers if i >= first] or list(numbers)
        graph.outputs = [rng.choice(late) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.2:
            graph.outputs.append(rng.randrange(first))
        for a, argument in enumerate(graph.arguments):
            fits = [
                i
                for i in numbers
                if self.values[i].shape == argument.shape
                and self.values[i].dtype == argument.dtype
                and i != a
            ]
            if fits and rng.random() < 0.3 and argument.numel():
                graph.writes.append((a, rng.choice(fits)))
        return graph

    def _argument(self) -> torch.Tensor:
        rng = self.rng
        dtype = rng.choice(self.dtypes)
        shape = [rng.choice(SIZES) for _ in range(rng.randint(0, 4))]
        while torch.Size(shape).numel() > 5000:
            shape.pop()
        generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
        x = torch.randint(-4, 5, shape, generator=generator).to(dtype)
        if len(shape) > 1 and rng.random() < 0.3:
            order = rng.sample(range(len(shape)), len(shape))
            back = [order.index(i) for i in range(len(shape))]
            x = x.permute(order).contiguous().permute(back)
        return x

    def _step(self) -> tuple[Step, torch.Tensor] | None:
        rng = self.rng
        make = rng.choice(_MAKERS)
        operands = [rng.randrange(len(self.values)) for _ in range(3)]
        if rng.random() < 0.5:
            operands[0] = len(self.values) - 1
        for _ in range(8):
            try:
                found = make(rng, *(self.values[i] for i in operands))
                text, count, function = found
                result = function(*(self.values[i] for i in operands[:count]))
            except (RuntimeError, IndexError, ValueError, TypeError):
                operands[1:] = [rng.randrange(len(self.values)) for _ in range(2)]
                continue
            if result.numel() > 20000:
                return None
            return Step(text, function, tuple(operands[:count])), result
        return None


# Each makes of some values a text, how many of them it takes, and the function.
_Made = tuple[str, int, Callable[..., torch.Tensor]]


def _small(x: torch.Tensor) -> torch.Tensor:
    """So small that sums of products stay exact."""
    return x if x.dtype == torch.bool else x.clamp(-8, 8)


def _unary(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    name = rng.choice(("neg", "abs", "relu", "square", "floor", "sign", "logical_not", "isnan"))
    function = getattr(torch, name)
    return name, 1, lambda a: _small(function(a))


def _binary(rng: random.Random, *_: torch.Tensor) -> _Made:
    name = rng.choice(
        ("add", "sub", "mul", "maximum", "minimum", "eq", "lt", "ge", "ne", "logical_and")
    )
    function = getattr(torch, name)
    return name, 2, lambda a, b: _small(function(a, b))


def _scalar(rng: random.Random, *_: torch.Tensor) -> _Made:
    name, number = rng.choice(("add", "mul", "sub", "gt", "remainder")), rng.choice((-3, 1, 2, 0.5))
    if name in ("remainder", "mul"):
        number = 2
    function = getattr(torch, name)
    return f"{name} {number}", 1, lambda a: _small(function(a, number))


def _where(rng: random.Random, *_: torch.Tensor) -> _Made:
    return "where", 3, lambda c, a, b: torch.where(c != 0, a, b)


def _cast(rng: random.Random, *_: torch.Tensor) -> _Made:
    dtype = rng.choice((torch.float32, torch.int64, torch.bool, torch.float64, torch.int32))
    dtype = dtype if rng.random() < 0.2 else rng.choice(DTYPES)
    return f"to {dtype}", 1, lambda a: a.to(dtype)


def _permute(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    order = rng.sample(range(x.dim()), x.dim())
    return f"permute {order}", 1, lambda a: a.permute(order)


def _reshape(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    kind = rng.choice(("flat", "flatten", "factors", "ones"))
    if kind == "flat":
        return "reshape -1", 1, lambda a: a.reshape(-1)
    if kind == "flatten" and x.dim() > 1:
        dim = rng.randrange(x.dim() - 1)
        return f"flatten {dim}", 1, lambda a: a.flatten(dim, dim + 1)
    if kind == "ones":
        dim = rng.randint(0, x.dim())
        return f"unsqueeze {dim}", 1, lambda a: a.unsqueeze(dim)
    shape, rest = [], x.numel()
    while rest > 1:
        factor = rng.choice([d for d in range(2, rest + 1) if rest % d == 0][:6])
        shape.append(factor)
        rest //= factor
    shape = shape if x.numel() else [3, 0, 2]
    rng.shuffle(shape)
    shape = shape[:5] if len(shape) <= 5 else [x.numel()]
    return f"reshape {shape}", 1, lambda a: a.reshape(shape)


def _slice(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    dim = rng.randrange(x.dim())
    kind = rng.choice(("slice", "step", "select", "squeeze", "flip", "roll", "diagonal", "unfold"))
    if kind in ("slice", "step"):
        start = rng.randint(0, x.shape[dim])
        end = rng.randint(start, x.shape[dim] + 2)
        step = 1 if kind == "slice" else rng.randint(2, 3)
        text = f"slice {dim} {start}:{end}:{step}"
        return text, 1, lambda a: torch.ops.aten.slice.Tensor(a, dim, start, end, step)
    if kind == "select":
        at = rng.randrange(-x.shape[dim], x.shape[dim])
        return f"select {dim} {at}", 1, lambda a: a.select(dim, at)
    if kind == "squeeze":
        return f"squeeze {dim}", 1, lambda a: a.squeeze(dim)
    if kind == "flip":
        return f"flip {dim}", 1, lambda a: a.flip(dim)
    if kind == "roll":
        by = rng.randint(-3, 3)
        return f"roll {by} {dim}", 1, lambda a: a.roll(by, dim)
    if kind == "diagonal":
        offset = rng.randint(-1, 1)
        return f"diagonal {offset}", 1, lambda a: a.diagonal(offset)
    return "unfold", 1, lambda a: a.unfold(dim, 2, 1)


def _expand(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    # -1: a number where the size is a symbol would make it one.
    shape = [rng.choice(SIZES[1:7]) if n == 1 else -1 for n in x.shape]
    shape = [rng.randint(1, 3)] * rng.randint(0, 1) + shape
    return f"expand {shape}", 1, lambda a: a.expand(shape)


def _reduce(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    name, keep = rng.choice(("sum", "amax", "amin", "any", "all", "argmax")), rng.random() < 0.5
    if name in ("argmax", "any", "all"):
        dims: Any = rng.randrange(x.dim())
    else:
        dims = rng.sample(range(x.dim()), rng.randint(1, x.dim()))
    function = getattr(torch, name)
    return f"{name} {dims} {keep}", 1, lambda a: _small(function(a, dims, keep))


def _cumulated(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    dim = rng.randrange(x.dim())
    return f"cumsum {dim}", 1, lambda a: _small(a.cumsum(dim))


def _matmul(rng: random.Random, x: torch.Tensor, y: torch.Tensor, *_: torch.Tensor) -> _Made:
    function = torch.mm if x.dim() == 2 else torch.bmm
    if rng.random() < 0.5:
        return (
            "product with its transpose",
            1,
            lambda a: _small(function(_small(a).float(), _small(a).float().transpose(-1, -2))),
        )
    return "product", 2, lambda a, b: _small(function(_small(a).float(), _small(b).float()))


def _concat(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    dim = rng.randrange(x.dim())
    if rng.random() < 0.5:
        return f"cat {dim}", 2, lambda a, b: torch.cat([a, b.to(a.dtype), a], dim)
    return f"stack {dim}", 1, lambda a: torch.stack([a, a.flip(dim)], dim)


def _pad(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    amounts = [rng.randint(-1, 2) for _ in range(2 * rng.randint(1, x.dim()))]
    return f"pad {amounts}", 1, lambda a: torch.constant_pad_nd(a, amounts, 1)


def _repeat(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    times = [rng.randint(1, 2) for _ in range(x.dim())]
    return f"repeat {times}", 1, lambda a: a.repeat(times)


def _pick(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    dim = rng.randrange(x.dim())
    count = rng.randint(1, 5)
    numbers = [rng.randrange(x.shape[dim]) for _ in range(count)]
    return (
        f"index_select {dim} {numbers}",
        1,
        lambda a: a.index_select(dim, torch.tensor(numbers)),
    )


def _written(rng: random.Random, x: torch.Tensor, *_: torch.Tensor) -> _Made:
    dim = rng.randrange(x.dim())
    start = rng.randint(0, x.shape[dim])
    end = rng.randint(start, x.shape[dim])

    def write(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        part = a.narrow(dim, start, end - start)
        # Of elements in one place eager writes all, and what is compiled one.
        return torch.slice_scatter(a.contiguous(), b.to(a.dtype).expand_as(part), dim, start, end)

    return f"slice_scatter {dim} {start}:{end}", 2, write


_MAKERS = (
    _unary, _binary, _binary, _binary, _scalar, _where, _cast, _permute, _reshape, _reshape,
    _slice, _slice, _slice, _expand, _reduce, _reduce, _cumulated, _matmul, _concat, _pad, _repeat,
    _pick, _written,
)  # fmt: skip
