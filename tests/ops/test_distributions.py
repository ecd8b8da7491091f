"""Random numbers have the distributions that torch's have."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.ops.random_cases import (
    CHANCES,
    INF,
    MANY,
    NAN,
    RATES,
    SPREAD,
    TRIES,
    WEIGHTS,
    X,
    drawn,
    off,
    one,
    programs,
)
from tests.support.groups import compile_group

pytestmark = compile_group("random", weight=3)


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
    assert off(one("bernoulli_p").mean(), 0.3, MANY) < 4
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
    program = programs()["randperm_short-dynamic"]
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
