"""Sorting, selection, search and counts beyond op_db's samples: long lines, ties, NaN, the ends of
the integers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

NAN, INF = float("nan"), float("inf")
INTEGERS = (torch.uint8, torch.int16, torch.int64)


def _spoiled(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(shape)
    flat = x.reshape(-1)
    flat[::7], flat[1::11], flat[2::13] = NAN, INF, -INF
    flat[3::5], flat[4::10] = 0.0, -0.0
    return x


def _whole(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    torch.manual_seed(1)
    limits = torch.iinfo(dtype)
    x = torch.randint(max(limits.min, -(2**62)), min(limits.max, 2**62), shape).to(dtype)
    x.reshape(-1)[:3] = torch.tensor([limits.min, limits.max, limits.max - 1]).to(dtype)
    return x


def _sorts(x: torch.Tensor) -> Any:
    return (
        *torch.sort(x, dim=-1, stable=True),
        *torch.sort(x, dim=-1, stable=True, descending=True),
        torch.argsort(x, dim=0, stable=True),
        torch.msort(x),
    )


def _selects(x: torch.Tensor) -> Any:
    """Values only: among equal ones torch leaves the place open."""
    return [
        f(x)[0]
        for f in (
            lambda x: torch.topk(x, 1),
            lambda x: torch.topk(x, 20),
            lambda x: torch.topk(x, 20, largest=False),
            lambda x: torch.topk(x, 200),
            lambda x: torch.topk(x, 200, largest=False),
            lambda x: torch.topk(x, x.shape[-1]),
            lambda x: torch.kthvalue(x, 1),
            lambda x: torch.kthvalue(x, 700),
            lambda x: torch.kthvalue(x, x.shape[-1]),
            lambda x: torch.median(x, -1),
            lambda x: torch.median(x, 0),
            lambda x: torch.nanmedian(x, -1),
            lambda x: (torch.nanmedian(x), torch.median(x)),
        )
    ]


def _where_they_stand(x: torch.Tensor) -> Any:
    """Of distinct values, where the place is no question."""
    return (
        torch.kthvalue(x, 500).indices,
        torch.median(x, 0).indices,
        torch.topk(x, 99).indices,
        torch.topk(x, 9, largest=False).indices,
    )


def _searches(x: torch.Tensor, edges: torch.Tensor) -> Any:
    order = torch.arange(edges.numel() - 1, -1, -1)
    return (
        torch.searchsorted(edges, x),
        torch.searchsorted(edges, x, right=True, out_int32=True),
        torch.searchsorted(edges.flip(0).contiguous(), x, sorter=order, side="right"),
        torch.searchsorted(edges, 1),
        torch.bucketize(x, edges),
        torch.bucketize(1, edges, right=True),
        torch.isin(x, edges),
    )


def _histogram(x: torch.Tensor) -> Any:
    edges = torch.tensor([-2.0, -0.5, 0.1, 3.0])
    return (
        *torch.histogram(x, 13),
        *torch.histogram(x, edges, density=True),
        *torch.histogram(x, 5, range=(-1.0, 1.0), weight=x.abs()),
        *torch.histogram(x.reshape(50, -1).double(), edges.double()),
    )


def _histograms(x: torch.Tensor) -> Any:
    points = x[: x.numel() // 4 * 4].reshape(-1, 2)
    edges = torch.tensor([-2.0, -0.5, 0.1, 3.0])
    return (
        torch.histc(x, 20),
        torch.histc(x, 7, -1, 2),
        torch.histogramdd(points, [3, 4]).hist,
        torch.histogramdd(points, [edges, edges]).hist,
    )


DISTINCT = torch.randperm(3000).float().reshape(3, 1000)
SORTED = torch.tensor([-2.5, -1.0, 0.0, 0.0, 0.5, 1.0, 4.0])

CASES: dict[str, tuple[Any, list[torch.Tensor]]] = {
    "histogram": (_histogram, [torch.randn(5000)]),  # torch traces it with static sizes only
    "sort long": (_sorts, [_spoiled(3, 3000)]),
    "sort short": (_sorts, [_spoiled(40, 9)]),
    "sort doubles": (_sorts, [_spoiled(3, 3000).double()]),
    "select": (_selects, [_spoiled(3, 3000)]),
    "select doubles": (_selects, [_spoiled(2, 1500).double()]),
    "places": (_where_they_stand, [DISTINCT]),
    "mode": (
        lambda x, y: (*torch.mode(x), torch.mode(y, 0).values, *torch.mode(x, keepdim=True)),
        [torch.tensor([[3, 1, 3, 1, 2], [5, 5, 4, 4, 4]]), _spoiled(12, 3)],
    ),
    "search": (_searches, [_spoiled(4, 50), SORTED]),
    "search integers": (
        _searches,
        [_whole(torch.int64, 100), torch.tensor([-(2**62) - 1, 0, 2**53, 2**53 + 1])],
    ),
    "search rows": (
        lambda x, e: torch.searchsorted(e, x),
        [_spoiled(3, 50), torch.sort(torch.randn(3, 20)).values],
    ),
    "histograms": (_histograms, [torch.randn(5000)]),
} | {f"sort {d}".replace("torch.", ""): (_sorts, [_whole(d, 3, 1000)]) for d in INTEGERS}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("selection", weight=4)
@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    program = _programs()[name]
    for ours, theirs in zip(program.run(), program.eager(), strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
