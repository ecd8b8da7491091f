"""Higher-order operators, through ``torch.compile``."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.precompiled import Case, whole_programs_by_max
from tests.support.groups import compile_group

group = compile_group("higher_order")


# Without matrix products, for which MAX compiles a third longer.
@torch.compiler.nested_compile_region
def _layer(x: Tensor, weight: Tensor) -> Tensor:
    return torch.relu(x * weight[0]) + x


def _branches(x: Tensor) -> Tensor:
    scale = torch.tensor([2.0, 3.0, 4.0, 5.0])
    return torch.cond(
        x.sum() > 0,
        lambda x: torch.cond(x[0, 0] > 1, lambda x: x * scale, torch.sin, (x,)),
        lambda x: x.cos() - scale,
        (x,),
    )


def _loop(x: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    return while_loop(
        lambda i, x: (i < limit) & (x.abs().max() < 1e4),
        lambda i, x: (i + 1, x * 2 + limit),
        (torch.zeros((), dtype=torch.int64), x),
    )


def _everything(x: Tensor, weight: Tensor, limit: Tensor, steps: Tensor) -> tuple[Tensor, ...]:
    for _ in range(3):
        x = _layer(x, weight)
    count, looped = _loop(x, limit)
    carried, kept = scan(lambda c, s: (c * 0.5 + s, c - s), x[0], steps)
    mapped = map_over(lambda s, w: torch.sin(s * w[1]), steps, weight)
    return _branches(x), count, looped, carried, kept, mapped


def _arguments(rows: int) -> list[Tensor]:
    torch.manual_seed(rows)
    return [torch.randn(rows, 4), torch.randn(4, 4) / 4, torch.tensor(5), torch.randn(6, 4)]


def _dynamic_arguments(rows: int, sign: int | None) -> list[Tensor]:
    x, *rest = _arguments(rows)
    if sign is not None:
        x = x.abs() * sign
    torch._dynamo.mark_dynamic(x, 0)
    return [x, *rest]


# By MAX: steps have tests of their own.
CASES = {
    "everything": Case(lambda: _everything, lambda: [tuple(_dynamic_arguments(3, 1))], dynamic=None)
}


@pytest.mark.xdist_group("compile-0")
def test_all_in_one_graph() -> None:
    with whole_programs_by_max().serving() as programs, torch.no_grad():
        compiled = programs.compiled("everything")
        for rows, sign in (3, 1), (3, -1), (3, 100), (5, None), (8, None):
            given = _dynamic_arguments(rows, sign)
            for ours, theirs in zip(compiled(*given), _everything(*given), strict=True):
                torch.testing.assert_close(ours, theirs)
        assert programs.loaded == 1


@group
def test_gradients_go_through() -> None:
    from torch_max_backend import max_backend

    def function(x: Tensor, weight: Tensor, steps: Tensor) -> Tensor:
        x = _layer(_layer(x, weight), weight)
        chosen = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * x, (x,))
        carried, kept = scan(lambda c, s: (c * 0.5 + s, torch.tanh(c) * s), x[0], steps)
        return chosen.sum() + (carried * 2).sum() + kept.sum()

    grads = []
    for call in (torch.compile(function, backend=max_backend, fullgraph=True), function):
        x, weight, _, steps = (
            t.clone().requires_grad_(t.is_floating_point()) for t in _arguments(3)
        )
        call(x, weight, steps).backward()
        grads.append([x.grad, weight.grad, steps.grad])
    for ours, theirs in zip(*grads, strict=True):
        torch.testing.assert_close(ours, theirs)


@group
def test_flex_attention() -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    from torch_max_backend import max_backend

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device="cpu")
    slopes = torch.tensor([0.5, 0.25])

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        alibi = lambda score, b, h, i, j: score + (j - i) * slopes[h]  # noqa: E731
        return flex_attention(q, k, v, score_mod=alibi, block_mask=mask)

    torch.manual_seed(0)
    given = [torch.randn(1, 2, 128, 16) for _ in range(3)]
    with torch.no_grad():
        ours = torch.compile(function, backend=max_backend, fullgraph=True)(*given)
        torch.testing.assert_close(ours, function(*given))
