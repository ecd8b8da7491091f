"""Programs that draw random numbers, compiled as one module."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
MANY = 100_000
WIDTH, LAYERS = 24, 4
NAN, INF = float("nan"), float("inf")


def _new(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(x.shape, dtype=dtype)


def _layers(x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
    """Dropout of a stack of equal layers, and the mask of each."""
    masks = []
    for weight in weights:
        h = torch.relu(F.layer_norm(x, (WIDTH,)) @ weight)
        h, mask = aten.native_dropout(h, 0.5, True)
        masks.append(mask)
        x = torch.tanh(x + h * 2) + 1
    return x, *masks


def _rrelu(x: Tensor) -> Any:
    return aten.rrelu_with_noise_functional(x, torch.empty_like(x), 0.2, 0.6, True)


def _weights() -> list[Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(WIDTH, WIDTH, generator=random) for _ in range(LAYERS)]


X = torch.zeros(MANY)
SPREAD = torch.linspace(0, 1, MANY)
RATES = torch.tensor([0.0, 0.3, 5.0, 12.0, 1000.0]).repeat(MANY // 5)
TRIES = torch.tensor([0.0, 4.0, 30.0, 30.0, 100.0, 1000.0]).repeat(MANY // 6)
CHANCES = torch.tensor([0.5, 0.25, 0.0, 1.0, 0.9, 0.4]).repeat(MANY // 6)
WEIGHTS = torch.tensor([[1.0, 2.0, 0.0, 5.0], [0.0, 0.0, 0.25, 0.0]])
CASES: dict[str, tuple[Callable[..., Any], list[Tensor]]] = {
    "rand": (lambda x: torch.rand(x.shape), [X]),
    "rand64": (lambda x: torch.rand(x.shape, dtype=torch.float64), [X]),
    "rand16": (lambda x: torch.rand(x.shape, dtype=torch.bfloat16), [X]),
    "rand_like": (torch.rand_like, [X.half()]),
    "randn": (lambda x: torch.randn(x.shape), [X]),
    "randn64": (lambda x: torch.randn(x.shape, dtype=torch.float64), [X]),
    "randn_like": (torch.randn_like, [X]),
    "uniform": (lambda x: _new(x).uniform_(-3, 5), [X]),
    "normal": (lambda x: torch.normal(2.0, 3.0, x.shape), [X]),
    "normal_": (lambda x: _new(x).normal_(2, 3), [X]),
    "normal_of_mean": (lambda m: torch.normal(m, 2.0), [1000 * SPREAD]),
    "normal_of_std": (lambda s: torch.normal(7.0, s), [SPREAD]),
    "normal_of_both": (lambda m, s: torch.normal(m[:1], s), [SPREAD + 4, SPREAD]),
    "exponential": (lambda x: _new(x).exponential_(2.0), [X]),
    "cauchy": (lambda x: _new(x).cauchy_(1.0, 2.0), [X]),
    "cauchy64": (lambda x: _new(x, torch.float64).cauchy_(1.0, 2.0), [X]),
    "log_normal": (lambda x: _new(x).log_normal_(1.0, 0.5), [X]),
    "geometric": (lambda x: _new(x, torch.int64).geometric_(0.25), [X]),
    "bernoulli": (torch.bernoulli, [SPREAD]),
    "bernoulli_p": (lambda x: torch.bernoulli(x, 0.3), [X]),
    "bernoulli_tensor": (lambda p: _new(p, torch.bool).bernoulli_(p), [SPREAD.double()]),
    "never": (lambda x: torch.bernoulli(x, 0.0), [X]),
    "always": (lambda x: torch.bernoulli(x, 1.0), [X]),
    "dropout": (lambda x: aten.native_dropout(x, 0.2, True), [SPREAD + 1]),
    "dropout_all": (lambda x: aten.native_dropout(x, 1.0, True), [SPREAD + 1]),
    "dropout_none": (lambda x: aten.native_dropout(x, 0.9, False), [SPREAD + 1]),
    "dropout2d": (lambda x: F.dropout2d(x, 0.5), [torch.ones(20, 300, 2, 3)]),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.3, True), [X]),
    "rrelu": (_rrelu, [SPREAD - 0.5]),
    "randint": (lambda x: torch.randint(-3, 7, x.shape), [X]),
    "randint_words": (lambda x: torch.randint(1 << 32, x.shape), [X[:64]]),
    "randint_wide": (lambda x: torch.randint(-(1 << 62) - 5, 1 << 62, x.shape), [X]),
    "randint_like": (lambda x: torch.randint_like(x, 5), [X.int()]),
    "randint_high": (lambda x, h: torch.randint_like(x, h), [X, torch.tensor(3)]),
    "randint_widest": (lambda x: torch.randint(-(1 << 63), (1 << 63) - 1, x.shape), [X]),
    "randint_size": (lambda x: torch.randint(x.shape[0], (MANY,), dtype=torch.int32), [X[:9]]),
    "randperm": (lambda x: torch.randperm(x.shape[0]), [X[:1000]]),
    "randperm_short": (lambda x: torch.randperm(4, dtype=torch.int32), [X[:1]]),
    "replaced": (lambda w: torch.multinomial(w, 20_000, replacement=True), [WEIGHTS]),
    "first": (lambda w: torch.multinomial(w.expand(20_000, 4), 2), [WEIGHTS[:1]]),
    "sample": (lambda w: torch.multinomial(w, 300), [SPREAD[:1000]]),
    "poisson": (torch.poisson, [RATES]),
    "binomial": (torch.binomial, [TRIES, CHANCES]),
    "two": (lambda x: (torch.rand(x.shape), torch.rand(x.shape)), [X]),
    "scalar": (lambda x: torch.rand(()) + torch.randn(()) * x[0], [X]),
    "layers": (_layers, [torch.ones(64, WIDTH), *_weights()]),
}
BOTH = ("rand", "randn", "dropout", "randint", "randperm", "replaced", "layers")
KINDS: dict[str, tuple[str, ...]] = dict.fromkeys(BOTH, ("static", "dynamic"))
# torch has no shape function for symbolic sizes, outside of Dynamo.
KINDS |= dict.fromkeys(("dropout2d", "alpha_dropout", "binomial"), ("static",))


@cache
def programs() -> dict[str, Program]:
    from tests.conformance.program import Program
    from tests.conformance.together import compile_together

    programs = [
        Program(f"{name}-{kind}", function, given, kind == "dynamic")
        for name, (function, given) in CASES.items()
        for kind in KINDS.get(name, ("dynamic",))
    ]
    compile_together(programs)
    return {p.name: p for p in programs}


def drawn(name: str, seed: int = 0, kind: str = "", given: Any = None) -> list[Tensor]:
    """The results of a case after ``torch.manual_seed``, its arguments replaced by ``given``."""
    torch.manual_seed(seed)
    program = programs()[f"{name}-{kind or KINDS.get(name, ('dynamic',))[-1]}"]
    if given is None:
        return program.run()
    if program.error is not None:
        raise program.error
    assert program.executable is not None
    return program.executable([t.clone() for t in given])


def one(name: str, seed: int = 0, kind: str = "", given: Any = None) -> Tensor:
    return drawn(name, seed, kind, given)[0]


def off(mean: Tensor, p: float, n: int) -> float:
    """How many standard deviations a share of hits is from its probability."""
    return abs(mean.item() - p) / math.sqrt(p * (1 - p) / n)
