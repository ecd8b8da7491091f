"""Attention whose queries have more heads than keys and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from tests.engines.steps.plans import kinds, traced


def _attention(*operands: torch.Tensor, **settings: Any) -> torch.Tensor:
    """With an operation after it, so that the result needs no copy of its own."""
    settings.setdefault("is_causal", False)
    function = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return -function(*operands, 0.0, **settings)[0]


def _repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    """As ``repeat_kv`` of transformers."""
    batch, heads, rows, width = x.shape
    wide = x[:, :, None].expand(batch, heads, times, rows, width)
    return wide.reshape(batch, heads * times, rows, width)


def _operands(
    queries: int, keys: int, heads: tuple[int, int], batch: int = 2
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(queries + keys)
    many, few = heads
    return (
        torch.randn(batch, many, queries, 16, generator=generator),
        torch.randn(batch, few, keys, 16, generator=generator),
        torch.randn(batch, few, keys, 16, generator=generator),
    )


def _check(
    function: Callable[..., list[torch.Tensor]], *arguments: torch.Tensor, copies: int = 0
) -> None:
    for dynamic in (False, True):
        plan, run = traced(function, arguments, dynamic)
        found = kinds(plan)
        assert found["tmb_attention"] == 1
        assert found["copy"] == copies
        for threads in (1, 2):
            before = torch.get_num_threads()
            torch.set_num_threads(threads)
            try:
                torch.testing.assert_close(run(list(arguments)), function(*arguments))
            finally:
                torch.set_num_threads(before)


@pytest.mark.parametrize("queries", [1, 3, 130])
@pytest.mark.parametrize("heads", [(8, 4), (6, 1), (4, 4), (6, 2)])
def test_repeated_heads_are_not_copied(queries: int, heads: tuple[int, int]) -> None:
    times = heads[0] // heads[1]

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [_attention(q, _repeated(k, times), _repeated(v, times))]

    _check(function, *_operands(queries, 37, heads))


def test_rows_before_heads() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        k, v = (_repeated(x.transpose(1, 2), 2) for x in (k, v))
        return [_attention(q.transpose(1, 2), k, v)]

    q, k, v = (x.transpose(1, 2).contiguous() for x in _operands(1, 21, (6, 3)))
    _check(function, q, k, v)


def test_only_one_of_both_is_repeated() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [_attention(q, _repeated(k, 3), v.repeat(1, 3, 1, 1))]

    # Heads that are repeated all together are another order.
    _check(function, *_operands(1, 21, (6, 2)), copies=1)


def test_a_copy_that_is_needed_otherwise() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        wide = _repeated(k, 2)
        return [_attention(q, wide, _repeated(v, 2)), wide]

    _check(function, *_operands(2, 9, (4, 2)), copies=1)


@pytest.mark.parametrize("queries", [1, 2, 40])
@pytest.mark.parametrize("kind", ["rows", "heads", "all", "none"])
def test_masks(queries: int, kind: str) -> None:
    """Keys at the end that are forbidden to all, to some, and to one query all of them."""
    q, k, v = _operands(queries, 37, (4, 2))
    heads = 4 if kind in ("heads", "all") else 1
    mask = torch.zeros(2 if kind == "all" else 1, heads, queries, 37)
    if kind != "none":
        mask[..., 11:] = -torch.inf
        mask[:, -1, -1, 11:20] = 0.5
    if kind == "all":
        mask[1, 1] = -torch.inf
        mask[1, 2, 0, 3:] = -torch.inf

    def function(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
    ) -> list[torch.Tensor]:
        return [_attention(q, _repeated(k, 2), _repeated(v, 2), attn_mask=mask)]

    _check(function, q, k, v, mask)


def test_a_causal_query() -> None:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> list[torch.Tensor]:
        return [_attention(q, _repeated(k, 2), _repeated(v, 2), is_causal=True)]

    _check(function, *_operands(1, 9, (4, 2)))
    _check(function, *_operands(9, 9, (4, 2)))


def test_training_with_repeated_heads() -> None:
    from torch_max_backend import max_backend

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = _repeated(k, 2), _repeated(v, 2)
        return scaled_dot_product_attention(q, k, v).square().sum()

    operands = [x.requires_grad_() for x in _operands(3, 9, (4, 2))]
    expected = torch.autograd.grad(function(*operands), operands)
    compiled = torch.compile(function, backend=max_backend, options={"cache": False})
    torch.testing.assert_close(torch.autograd.grad(compiled(*operands), operands), expected)
