"""Sizes, views and the arena: what the planner reckons with."""

import random

import pytest
import torch

from torch_max_backend.engines.steps.arena import offsets
from torch_max_backend.engines.steps.planner.graph import Value
from torch_max_backend.engines.steps.planner.sizes import Expr, dense_strides, product, quotient
from torch_max_backend.engines.steps.planner.views import View, reshaped_strides

N, M = Expr.symbol("d0"), Expr.symbol("d1")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (N + 1 - 1, "d0"),
        ((N + 1) * 2 - 2, "2*d0"),
        (N * M - M * N, "0"),
        ((N * 6 + M * 3) // 3, "2*d0 + d1"),
        (N // 2, "((d0) // (2))"),
        (N // 2 - N // 2, "0"),
        ((N * M) // M, "d0"),
    ],
)
def test_sizes_are_polynomials(size: object, text: str) -> None:
    assert str(size) == text


def test_expressions_have_the_values_that_they_say() -> None:
    size = (N * 3 + M) * (M - 2) + (N + 5) // 2
    for n in (1, 4, 7):
        for m in (2, 9):
            assert eval(str(size), {"d0": n, "d1": m}) == (n * 3 + m) * (m - 2) + (n + 5) // 2


def test_a_quotient_that_does_not_come_out_even_is_none() -> None:
    assert quotient(N * 4, 2) == N * 2
    assert quotient(N * 3, 2) is None
    assert quotient(N + 1, N) is None
    assert quotient(7, 2) is None


def _factored(count: int, rng: random.Random) -> tuple[int, ...]:
    """Random sizes with this product, some of them 1."""
    sizes = []
    while count > 1:
        divisors = [d for d in range(2, count + 1) if count % d == 0]
        size = rng.choice(divisors)
        sizes.append(size)
        count //= size
    for _ in range(rng.randrange(3)):
        sizes.insert(rng.randrange(len(sizes) + 1), 1)
    return tuple(sizes)


def test_a_reshape_is_a_view_just_where_torch_makes_one() -> None:
    rng = random.Random(0)
    views = 0
    for _ in range(2000):
        shape = _factored(rng.choice([12, 24, 36, 60]), rng)
        order = rng.sample(range(len(shape)), len(shape))
        tensor = torch.arange(product(shape)).reshape(shape).permute(order)
        if rng.random() < 0.3 and tensor.dim():
            axis = rng.randrange(tensor.dim())
            tensor = tensor.narrow(axis, 0, max(1, tensor.shape[axis] // 2))
        to = _factored(tensor.numel(), rng)
        strides = reshaped_strides(tuple(tensor.shape), tensor.stride(), to)
        try:
            expected = tensor.view(to)
        except RuntimeError:
            assert strides is None
            continue
        views += 1
        assert strides is not None
        found = torch.as_strided(tensor, to, strides, tensor.storage_offset())
        assert torch.equal(found, expected)
    assert views > 200


def test_symbolic_dims_are_split_and_merged() -> None:
    assert reshaped_strides((1, N, 64), (N * 64, 64, 1), (N, 4, 16)) == (64, 16, 1)
    assert reshaped_strides((N, 4, 16), (64, 16, 1), (1, N, 64)) == (N * 64, 64, 1)
    assert reshaped_strides((4, N, 16), (16, 64, 1), (4 * N, 16)) is None
    assert reshaped_strides((N, M), (M, 1), (N * M,)) == (1,)
    assert reshaped_strides((N * 2,), (1,), (N, 2)) == (2, 1)


def test_slices_transposes_and_broadcasts_move_no_data() -> None:
    base = torch.arange(60)
    view = View.whole(Value("int64", (3, 4, 5)))
    view = view.transpose([2, 0, 1]).slice((1, 0, 1), (2, 3, 2), [2, 1, 1])
    view = view.broadcast((7, 2, 3, 2))
    found = torch.as_strided(base, view.shape, view.strides, view.offset)
    expected = base.reshape(3, 4, 5).permute(2, 0, 1)[1:5:2, :, 1:3].expand(7, 2, 3, 2)
    assert torch.equal(found, expected)
    assert not view.is_dense()
    assert View.whole(Value("int64", (3, 1, 5))).is_whole()


def test_memory_that_lives_at_once_does_not_overlap() -> None:
    rng = random.Random(1)
    for _ in range(50):
        count = rng.randrange(1, 40)
        sizes = [rng.randrange(0, 5000) for _ in range(count)]
        lives = [sorted((rng.randrange(30), rng.randrange(30))) for _ in range(count)]
        at, total = offsets(sizes, [(a, b) for a, b in lives])
        for i in range(count):
            assert at[i] % 64 == 0
            assert at[i] + sizes[i] <= total
            for j in range(i):
                if lives[i][0] <= lives[j][1] and lives[j][0] <= lives[i][1]:
                    assert at[i] + sizes[i] <= at[j] or at[j] + sizes[j] <= at[i]


def test_memory_is_used_again() -> None:
    _, total = offsets([4096] * 10, [(i, i + 1) for i in range(10)])
    assert total <= 2 * (4096 + 64)
    assert dense_strides((2, 3, 4)) == (12, 4, 1)
