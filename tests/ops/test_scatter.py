"""Writes by index and sums of bags and segments beyond op_db's samples: many lines for threads,
duplicates, NaN, integers beyond 2**53, and indices out of range."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from tests.support.beside_eager import assert_as_eager
from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
NAN = float("nan")
KINDS = ("sum", "prod", "mean", "amax", "amin")


def _index(*shape: int, size: int) -> torch.Tensor:
    return torch.randint(size, shape, generator=torch.Generator().manual_seed(3))


def _reduces(
    x: torch.Tensor, index: torch.Tensor, src: torch.Tensor, dim: int, include: bool, *kinds: str
) -> Any:
    return [
        torch.scatter_reduce(x, dim, index, src, kind, include_self=include)
        for kind in kinds or KINDS
    ]


def _index_reduces(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor, dim: int) -> Any:
    return [
        torch.index_reduce(x, dim, index, src, kind, include_self=include)
        for kind, include in (("prod", True), ("mean", False), ("amax", False), ("amin", True))
    ]


def _writes(x: torch.Tensor, index: torch.Tensor, src: torch.Tensor, flat: torch.Tensor) -> Any:
    return (
        torch.scatter_add(x, 1, flat, src),
        torch.index_add(x, 1, index, src, alpha=2),
        torch.index_copy(x, 1, index[:0], src[:, :0]),
        aten.index_put(x, [None, index - x.shape[1]], src, True),
        torch.index_put(x, [index[:5] % 6, index[-5:]], src[0, :5], accumulate=True),
        torch.put(x, index, src[0, : index.numel()], accumulate=True),
    )


def _bags(weight: torch.Tensor, index: torch.Tensor, offsets: torch.Tensor) -> Any:
    scales = torch.arange(float(index.numel()))
    return (
        *(F.embedding_bag(index, weight, offsets, mode=m) for m in ("sum", "mean", "max")),
        *(F.embedding_bag(index, weight, offsets, mode=m, padding_idx=2) for m in ("sum", "max")),
        F.embedding_bag(index, weight, offsets, mode="mean", include_last_offset=True),
        F.embedding_bag(index, weight, offsets, mode="sum", per_sample_weights=scales),
        F.embedding_bag(index.reshape(4, -1), weight, mode="mean"),
    )


def _segments(x: torch.Tensor, lengths: torch.Tensor) -> Any:
    offsets = torch.tensor([0, 2, 2, 6])
    kinds = ("sum", "mean", "prod", "max", "min")
    return (
        *(torch.segment_reduce(x, k, lengths=lengths) for k in kinds),
        *(torch.segment_reduce(x, k, offsets=offsets, initial=1) for k in kinds),
    )


def _gradients(rows: torch.Tensor, index: torch.Tensor) -> Any:
    return [
        aten.embedding_dense_backward(rows, index, 50, padding, frequency)
        for padding in (-1, 3)
        for frequency in (False, True)
    ]


def _spoiled(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x.reshape(-1)[::17] = NAN
    return x


torch.manual_seed(0)
WIDE, DEEP = torch.randn(6, 40), torch.randn(3, 20, 300)
LARGE = torch.randint(2**60, 2**61, (6, 40))
CASES: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "reduce rows": (
        lambda x, i, s: _reduces(x, i, s, 1, True),
        [WIDE, _index(5, 90, size=40), _spoiled(torch.randn(6, 100))],
    ),
    "reduce columns": (
        lambda x, i, s: _reduces(x, i, s, 1, False),
        [DEEP, _index(3, 50, 299, size=20), _spoiled(torch.randn(3, 50, 300))],
    ),
    "reduce integers": (
        lambda x, i, s: _reduces(x, i, s, 0, False, "sum", "mean", "amin"),
        [LARGE, _index(9, 40, size=6), torch.randint(-(2**59), 2**59, (9, 40))],
    ),
    "reduce bytes": (
        lambda x, i, s: _reduces(x, i, s, 0, True, "prod", "amax"),
        [WIDE.to(torch.uint8), _index(9, 40, size=6), torch.ones(9, 40, dtype=torch.uint8)],
    ),
    "index_reduce": (
        lambda x, i, s: _index_reduces(x, i, s, 1),
        [DEEP, _index(50, size=20), _spoiled(torch.randn(3, 50, 300))],
    ),
    "writes": (_writes, [WIDE, _index(30, size=40), torch.randn(6, 30), _index(6, 30, size=40)]),
    "writes of integers": (
        _writes,
        [LARGE, _index(30, size=40), LARGE[:, :30], _index(6, 30, size=40)],
    ),
    "writes of bfloat16": (
        lambda x, i, s: torch.scatter(x, 1, i, s),
        [WIDE.bfloat16(), torch.randperm(40)[:30].expand(6, 30), torch.randn(6, 30).bfloat16()],
    ),
    "writes of flags": (
        lambda x, i, s: (
            torch.index_put(x, [i], s, accumulate=True),
            torch.index_put(x, [i[:0]], s[:0]),
            torch.scatter(x, 0, i[:, None].expand(-1, 40), s),
        ),
        [WIDE > 0, torch.arange(6).flip(0), WIDE.flip(0) > 1],
    ),
    "bags": (_bags, [torch.randn(20, 33), _index(24, size=20), torch.tensor([0, 5, 5, 24])]),
    "segments": (_segments, [_spoiled(torch.randn(6, 5)), torch.tensor([3, 0, 2, 1])]),
    "embedding gradient": (_gradients, [torch.randn(4, 60, 33), _index(4, 60, size=50)]),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("scatter", weight=4)
@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)


@compile_group("scatter", weight=4)
@pytest.mark.parametrize("wrong", [-1, 1000])
@pytest.mark.parametrize(
    "name", ["reduce rows", "reduce columns", "index_reduce", "embedding gradient", "bags"]
)
def test_an_index_out_of_range_raises(name: str, wrong: int) -> None:
    from torch_max_backend import IndexOutOfBoundsError

    program = _programs()[name]
    assert program.executable is not None
    given = [t.clone() for t in CASES[name][1]]
    given[1].reshape(-1)[-1] = wrong
    with pytest.raises(IndexOutOfBoundsError):
        program.executable(given)


def _rows(case: str) -> torch.Tensor:
    index = _index(500, size=60)
    if case == "one row":
        index = torch.full((500,), 7)
    elif case == "few":
        index = index[:20]
    return index


# Of hundreds of numbers, which eager may add in another order.
LONG_SUMS = {"rtol": 1e-4, "atol": 1e-4}


def _reduced_rows(
    x: torch.Tensor, src: torch.Tensor, index: torch.Tensor, how: str, include: bool
) -> torch.Tensor:
    return x.detach().index_reduce(0, index, src.detach(), how, include_self=include)


@pytest.mark.parametrize("case", ["many", "one row", "few"])
def test_each_row_is_written_once(case: str) -> None:
    """Rows that are as wide as several vectors, of which each has all that falls on it."""
    index = _rows(case)
    x, src = torch.rand(60, 200), torch.rand(len(index), 200)
    assert_as_eager(lambda x, s: x.index_add(0, index, s, alpha=2), x, src, **LONG_SUMS)
    lines = x.expand(3, -1, -1).contiguous(), src.expand(3, -1, -1).contiguous()
    assert_as_eager(lambda x, s: x.index_add(1, index, s), *lines, **LONG_SUMS)
    assert_as_eager(lambda w: F.embedding(index, w, padding_idx=7), x, **LONG_SUMS)
    assert_as_eager(lambda x: x[index - 60], x, **LONG_SUMS)
    for how, include in (("prod", True), ("prod", False), ("amax", True)):
        reduced = partial(_reduced_rows, index=index, how=how, include=include)
        assert_as_eager(reduced, x, 1 + src / 1000, **LONG_SUMS)


def test_rows_are_added_in_place() -> None:
    index = _rows("many")

    def function(x: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        kept = x * 1
        return kept.index_add_(0, index, src)

    assert_as_eager(function, torch.rand(60, 200), torch.rand(500, 200), **LONG_SUMS)


def test_what_is_scattered_to_zeros() -> None:
    index = torch.tensor([[3], [0], [3], [6], [0]])
    values = torch.arange(1.0, 6).reshape(5, 1)

    def function(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        zeros = torch.zeros(5, 7)
        one = torch.full((5, 7), 0.0).scatter(1, index, 2.5)
        sums = zeros.scatter_add(0, index.expand(5, 7) % 5, values.expand(5, 7))
        single = torch.zeros(1, 1).scatter(1, index[:1] % 1, 4.0)
        return one + sums + zeros.scatter(1, index, values) + single

    assert_as_eager(function, values, index)


def test_the_gradient_of_cross_entropy_by_classes() -> None:
    scores = torch.randn(40, 300, generator=torch.Generator().manual_seed(0))
    target = torch.arange(40) * 7
    target[5] = -100
    assert_as_eager(lambda x, t: F.cross_entropy(x, t), scores, target)
