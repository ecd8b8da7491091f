"""Random numbers: their distributions, and what tells one draw from another.

Each test sets torch's seed, so its numbers are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.support.groups import compile_group

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
def _programs() -> dict[str, Program]:
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
    program = _programs()[f"{name}-{kind or KINDS.get(name, ('dynamic',))[-1]}"]
    if given is None:
        return program.run()
    if program.error is not None:
        raise program.error
    assert program.executable is not None
    return program.executable([t.clone() for t in given])


def one(name: str, seed: int = 0, kind: str = "", given: Any = None) -> Tensor:
    return drawn(name, seed, kind, given)[0]


pytestmark = compile_group("random", weight=12)


# What a draw depends on


def philox(key: int, counter: list[int]) -> list[int]:
    """Philox4x32-10, as in Salmon et al. 2011."""
    low, (a, b, c, d), k, h = 0xFFFFFFFF, counter, key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32) ^ b ^ k, q & low, (p >> 32) ^ d ^ h, p & low
        k, h = (k + 0x9E3779B9) & low, (h + 0xBB67AE85) & low
    return [a, b, c, d]


def test_philox_known_answers() -> None:
    """The published vectors of Random123 (kat_vectors)."""
    known = [
        (0, [0] * 4, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (2**64 - 1, [2**32 - 1] * 4, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            0x299F31D0A4093822,
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ]
    for key, counter, words in known:
        assert philox(key, counter) == words


@pytest.mark.parametrize("seed", [0, -1, 0x299F31D0A4093822])
def test_words_are_philox_of_seed_and_element(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend.engines.max import executable
    from torch_max_backend.engines.steps import run

    for module in (executable, run):
        monkeypatch.setattr(module, "draw", lambda device: torch.tensor(seed))
    words = one("randint_words").tolist()
    blocks = [philox(seed % (1 << 64), [block, 0, 0, 0]) for block in range(16)]
    assert words == [blocks[i % 16][i // 16] for i in range(64)]
    # Many tasks share the work; none of it depends on which.
    uniform = (one("rand", kind="static") * 2**24).long()
    for i in (0, 15, 16, 777, 50_000, MANY - 1):
        block = philox(seed % (1 << 64), [i // 64 * 16 + i % 16, 0, 0, 0])
        assert uniform[i].item() == block[i % 64 // 16] >> 8


@pytest.mark.parametrize("name", CASES)
def test_a_seed_gives_the_same_numbers_again(name: str) -> None:
    first, again = drawn(name, seed=3), drawn(name, seed=3)
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", BOTH)
def test_sizes_may_be_dynamic(name: str) -> None:
    for a, b in zip(drawn(name, 5, "static"), drawn(name, 5, "dynamic"), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("size", [0, 1, 5, 63, 64, 65, 1000])
def test_other_sizes_are_a_beginning_of_the_same_numbers(size: int) -> None:
    for name in ("rand", "randn", "rand64", "randn64", "randint", "randint_wide", "exponential"):
        assert torch.equal(one(name, given=[X[:size]]), one(name)[:size])
    assert sorted(one("randperm", given=[X[:size]]).tolist()) == list(range(size))


def test_the_state_advances() -> None:
    torch.manual_seed(0)
    program = _programs()["rand-dynamic"]
    (first,), (second,) = program.run(), program.run()
    assert _agreement(first, second) == 0
    assert _agreement(one("rand", 0), one("rand", 1)) == 0
    # The state is torch's: what eager draws in between changes what follows.
    torch.manual_seed(0)
    torch.rand(1)
    assert _agreement(program.run()[0], first) == 0


def test_nodes_of_a_graph_are_independent() -> None:
    first, second = drawn("two")
    assert _agreement(first, second) == 0
    assert abs(torch.corrcoef(torch.stack([first, second]))[0, 1]) < 4 / math.sqrt(MANY)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
def test_layers_that_share_their_code_are_independent(kind: str) -> None:
    from torch_max_backend.engines.max.module import build_module

    trace = _programs()[f"layers-{kind}"].trace
    assert trace is not None
    text = str(build_module([trace])[0].mlir_module)
    assert text.count("mo.call @") == LAYERS
    _, *masks = drawn("layers", kind=kind)
    for i, mask in enumerate(masks):
        assert _off(mask.float().mean(), 0.5, mask.numel()) < 4
        for other in masks[:i]:
            same = (mask == other).float().mean()
            assert abs(same - 0.5) < 4 * 0.5 / math.sqrt(mask.numel())


def _agreement(a: Tensor, b: Tensor) -> float:
    """The share of equal numbers, less what chance explains."""
    return max(0.0, (a == b).double().mean().item() - 1e-4)


def _off(mean: Tensor, p: float, n: int) -> float:
    """How many standard deviations a share of hits is from its probability."""
    return abs(mean.item() - p) / math.sqrt(p * (1 - p) / n)


# Distributions


def _kolmogorov(values: Tensor, cdf: Callable[[Tensor], Tensor]) -> float:
    """The statistic of Kolmogorov and Smirnov times sqrt(n): beyond 1.95 once in 1,000."""
    expected = cdf(values.double().sort().values)
    n = values.numel()
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    return math.sqrt(n) * max((steps[1:] - expected).max(), (expected - steps[:-1]).max()).item()


def _normal_cdf(x: Tensor) -> Tensor:
    return 0.5 * torch.erfc(-x / math.sqrt(2))


CDFS: dict[str, Callable[[Tensor], Tensor]] = {
    "rand": lambda x: x,
    "rand64": lambda x: x,
    "randn": _normal_cdf,
    "randn64": _normal_cdf,
    "randn_like": _normal_cdf,
    "uniform": lambda x: (x + 3) / 8,
    "normal": lambda x: _normal_cdf((x - 2) / 3),
    "normal_": lambda x: _normal_cdf((x - 2) / 3),
    "exponential": lambda x: -torch.expm1(-2 * x),
    "cauchy": lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi,
    "cauchy64": lambda x: 0.5 + torch.atan((x - 1) / 2) / math.pi,
    "log_normal": lambda x: _normal_cdf((x.log() - 1) / 0.5),
}


@pytest.mark.parametrize("name", CDFS)
def test_distribution(name: str) -> None:
    values = one(name)
    assert values.isfinite().all()
    assert _kolmogorov(values, CDFS[name]) < 1.95
    # Neighbours, in each of the ways that elements share a block.
    for lag in (1, 16, 32, 48, 64):
        pairs = torch.stack([values[:-lag], values[lag:]]).double()
        ranks = CDFS[name](pairs)
        assert abs(torch.corrcoef(ranks)[0, 1]) < 4 / math.sqrt(MANY)


def test_moments_of_normal_numbers() -> None:
    for name in ("randn", "randn64"):
        z = one(name).double()
        for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
            assert abs((z**power).mean() - moment) < 4 * math.sqrt(variance / MANY)


def test_uniform_numbers_are_below_one_and_have_all_their_digits() -> None:
    for name, digits in (("rand", 24), ("rand64", 53), ("rand16", 8), ("rand_like", 11)):
        scaled = one(name).double() * 2**digits
        assert scaled.min() >= 0
        assert scaled.max() < 2**digits
        assert (scaled == scaled.round()).all()
        assert ((scaled / 2).round() * 2 != scaled).double().mean() > 0.49
        assert abs(scaled.mean() / 2**digits - 0.5) < 4 / math.sqrt(12 * MANY) + 2.0**-digits


def test_normal_of_tensors() -> None:
    mean = 1000 * SPREAD
    assert _kolmogorov((one("normal_of_mean") - mean) / 2, _normal_cdf) < 1.95
    z = (one("normal_of_std") - 7) / SPREAD
    assert _kolmogorov(z[MANY // 10 :], _normal_cdf) < 1.95
    assert one("normal_of_std")[0] == 7
    z = (one("normal_of_both") - 4) / SPREAD
    assert _kolmogorov(z[MANY // 10 :], _normal_cdf) < 1.95


def _chi_square(observed: Tensor, expected: Tensor) -> float:
    """How many standard deviations a chi-square statistic is above its mean."""
    freedom = observed.numel() - 1
    statistic = ((observed.double() - expected) ** 2 / expected).sum().item()
    return (statistic - freedom) / math.sqrt(2 * freedom)


def test_geometric() -> None:
    k = one("geometric")
    assert k.min() == 1
    counts = torch.bincount(k.clamp(max=20))[1:]
    p = 0.25 * 0.75 ** torch.arange(20, dtype=torch.float64)
    p[-1] = 0.75**19
    assert _chi_square(counts, MANY * p) < 4


def test_bernoulli() -> None:
    assert _off(one("bernoulli_p").mean(), 0.3, MANY) < 4
    assert one("never").sum() == 0
    assert one("always").sum() == MANY
    for name in ("bernoulli", "bernoulli_tensor"):
        hits = one(name).double()
        assert hits[0] == 0
        assert hits[-1] == 1
        for part, p in zip(hits.chunk(4), SPREAD.double().chunk(4), strict=True):
            assert abs((part - p).sum()) < 4 * math.sqrt((p * (1 - p)).sum())
    assert one("bernoulli_tensor").dtype == torch.bool


@pytest.mark.parametrize("wrong", [-0.1, 1.5, NAN])
def test_bernoulli_validates(wrong: float) -> None:
    from torch_max_backend import MaxBackendError

    p = SPREAD.clone()
    p[77_777] = wrong
    with pytest.raises(MaxBackendError, match="p_in"):
        one("bernoulli", given=[p])


def test_normal_validates() -> None:
    from torch_max_backend import MaxBackendError

    with pytest.raises(MaxBackendError, match="std >= 0"):
        one("normal_of_std", given=[SPREAD - 0.5])


def test_dropout() -> None:
    x = SPREAD + 1
    y, mask = drawn("dropout")
    assert mask.dtype == torch.bool
    assert _off(mask.double().mean(), 0.8, MANY) < 4
    torch.testing.assert_close(y, x * mask / 0.8, rtol=1e-6, atol=0)
    y, mask = drawn("dropout_all")
    assert not y.any()
    assert not mask.any()
    y, mask = drawn("dropout_none")
    assert torch.equal(y, x)
    assert mask.all()
    spoiled = torch.tensor([NAN, INF]).repeat(50)
    y, mask = drawn("dropout", given=[spoiled])
    assert torch.equal(y.isnan(), spoiled.isnan() | ~mask)


def test_whole_channels_are_dropped() -> None:
    planes = one("dropout2d").flatten(2)
    assert set(planes.unique().tolist()) == {0.0, 2.0}
    assert (planes == planes[..., :1]).all()
    assert _off((planes[..., 0] / 2).mean(), 0.5, 6000) < 4


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    # Of one seed, the first nodes of both graphs would draw the same words.
    y = one("alpha_dropout", seed=1, given=[one("randn")]).double()
    assert abs(y.mean()) < 4 / math.sqrt(MANY)
    assert abs(y.var() - 1) < 0.03


def test_rrelu() -> None:
    x = SPREAD - 0.5
    y, noise = drawn("rrelu")
    assert torch.equal(y[x > 0], x[x > 0])
    torch.testing.assert_close(y, x * noise, rtol=0, atol=0)
    slopes = noise[x < 0]
    assert _kolmogorov(slopes, lambda s: (s - 0.2) / 0.4) < 1.95


def test_randint() -> None:
    k = one("randint")
    assert k.dtype == torch.int64
    assert _chi_square(torch.bincount(k + 3, minlength=10), torch.full((10,), MANY / 10)) < 4
    assert k.min() == -3
    assert k.max() == 6
    assert sorted(one("randint_like").unique().tolist()) == [0, 1, 2, 3, 4]
    assert one("randint_high").unique().tolist() == [0.0, 1.0, 2.0]
    assert one("randint_size").unique().tolist() == list(range(9))
    assert one("randint_size", given=[X[:5]]).unique().tolist() == list(range(5))


def test_randint_of_wide_ranges() -> None:
    def share(k: Tensor, low: int, span: int) -> Tensor:
        return (k.double() - low) / float(span)

    low, high = -(1 << 62) - 5, 1 << 62
    k = one("randint_wide")
    assert k.min() >= low
    assert _kolmogorov(share(k, low, high - low), lambda u: u) < 1.95
    k = one("randint_widest")
    assert _kolmogorov(share(k, -(1 << 63), 1 << 64), lambda u: u) < 1.95


def test_randperm() -> None:
    order = one("randperm")
    assert sorted(order.tolist()) == list(range(1000))
    assert abs(torch.corrcoef(torch.stack([order, torch.arange(1000)]).double())[0, 1]) < 0.15
    assert (order == torch.arange(1000)).sum() < 8
    torch.manual_seed(0)
    program = _programs()["randperm_short-dynamic"]
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(4800):
        found = tuple(program.run()[0].tolist())
        counts[found] = counts.get(found, 0) + 1
    assert len(counts) == 24
    assert _chi_square(torch.tensor([*counts.values()]), torch.full((24,), 200.0)) < 4


def test_multinomial() -> None:
    first, second = one("replaced")
    assert _chi_square(torch.bincount(first)[[0, 1, 3]], 20_000 * torch.tensor([1, 2, 5]) / 8) < 4
    assert not (first == 2).any()
    assert (second == 2).all()
    pairs = one("first")
    assert (pairs[:, 0] != pairs[:, 1]).all()
    counts = torch.bincount(pairs[:, 0] * 4 + pairs[:, 1], minlength=16)
    w = WEIGHTS[0].double()
    chances = w[:, None] / 8 * w / (8 - w[:, None])
    wanted = [(i, j) for i in (0, 1, 3) for j in (0, 1, 3) if i != j]
    at = torch.tensor([4 * i + j for i, j in wanted])
    assert _chi_square(counts[at], 20_000 * chances.flatten()[at]) < 4
    assert counts.sum() == counts[at].sum()
    sample = one("sample")
    assert sample.unique().numel() == 300
    assert not (sample == 0).any()


@pytest.mark.parametrize("name", ["replaced", "first"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0, 1.0, 1.0], "element < 0"),
        ([1.0, NAN, 1.0, 1.0], "element < 0"),
        ([1.0, INF, 1.0, 1.0], "element < 0"),
        ([0.0, 0.0, 0.0, 0.0], "sum of probabilities <= 0"),
    ],
)
def test_multinomial_validates(name: str, weights: list[float], message: str) -> None:
    from torch_max_backend import MaxBackendError

    rows = torch.tensor([[1.0, 2.0, 3.0, 4.0], weights])
    given = rows if name == "replaced" else rows[1:]
    with pytest.raises(RuntimeError):
        torch.multinomial(given, 2)
    with pytest.raises(MaxBackendError, match=message):
        one(name, given=[given])


def test_poisson_and_binomial() -> None:
    k = one("poisson").double().view(-1, 5)
    assert not k[:, 0].any()
    for rate, column in zip(RATES[1:5].tolist(), k.T[1:], strict=True):
        n = column.numel()
        assert abs(column.mean() - rate) < 4 * math.sqrt(rate / n)
        assert abs(column.var() / rate - 1) < 4 * math.sqrt((2 + 1 / rate) / n)
        assert (column == column.round()).all()
    with pytest.raises(Exception, match="Poisson rate"):
        one("poisson", given=[-RATES])
    k = one("binomial").double().view(-1, 6)
    for tries, p, column in zip(TRIES[:6].tolist(), CHANCES[:6].tolist(), k.T, strict=True):
        spread = tries * p * (1 - p)
        assert abs(column.mean() - tries * p) <= 4 * math.sqrt(spread / column.numel())
        assert (column.var() - spread).abs() <= 0.05 * spread
        assert column.max() <= tries


# Through torch.compile


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(16, 64)
        self.dropout = torch.nn.Dropout(0.5)
        self.down = torch.nn.Linear(64, 64, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.dropout(self.up(x))
        return self.down(h), h


def test_training_uses_the_mask_of_forward() -> None:
    from torch_max_backend import max_backend

    torch.manual_seed(0)
    net = _Net()
    x = torch.randn(32, 16)
    compiled = torch.compile(net, backend=max_backend, fullgraph=True)

    def step(seed: int) -> tuple[Tensor, list[Tensor]]:
        torch.manual_seed(seed)
        net.zero_grad()
        y, h = compiled(x)
        y.square().sum().backward()
        return h.detach(), [p.grad.clone() for p in net.parameters()]  # type: ignore[union-attr]

    h, gradients = step(1)
    mask = h != 0
    assert 0.4 < mask.double().mean() < 0.6
    net.zero_grad()
    dropped = net.up(x) * mask * 2
    torch.testing.assert_close(h, dropped.detach())
    net.down(dropped).square().sum().backward()
    for ours, parameter in zip(gradients, net.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-3)
    again, _ = step(1)
    other, _ = step(2)
    assert torch.equal(h, again)
    assert not torch.equal(mask, other != 0)


def test_generators_of_ones_own_are_refused() -> None:
    from tests.conformance.program import Program, trace_program
    from torch_max_backend import UnsupportedOperatorError

    generator = torch.Generator()
    for function in (
        lambda x: torch.bernoulli(x, 0.5, generator=generator),
        lambda x: torch.rand(3, generator=generator),
        lambda x: torch.randperm(3, generator=generator),
        lambda x: torch.multinomial(x, 2, generator=generator),
    ):
        with pytest.raises(UnsupportedOperatorError, match="explicit generator"):
            trace_program(Program("generator", function, [torch.rand(8)]))
