"""NaN, infinities, masked rows, empty reductions and overloads that op_db does not reach, against
eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.support.groups import compile_group

if TYPE_CHECKING:
    from tests.conformance.program import Program

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")

ROWS = torch.tensor(
    [
        [1.0, 2.0, NAN, 3.0],
        [1.0, INF, 2.0, NAN],
        [INF, INF, 1.0, -INF],
        [-INF, -INF, -INF, -INF],
        [INF, INF, INF, INF],
        [NAN, NAN, NAN, NAN],
        [3.0, 3.0, -INF, 1.0],
        [-3.4028234663852886e38, -INF, -INF, -INF],
        [0.0, -0.0, 0.0, 0.0],
    ]
).repeat(1, 9)
IMAGES = torch.randn(3, 4, 5, 6, generator=torch.Generator().manual_seed(0))
CHANNELS = [torch.rand(4, generator=torch.Generator().manual_seed(i)) + 0.5 for i in range(4)]
EMPTY = torch.zeros(3, 0, 2)
HEADS = torch.randn(2, 2, 5, 8, generator=torch.Generator().manual_seed(0))
MASK = torch.zeros(5, 5).masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(), -INF)


def _attention(*args: Any, **kwargs: Any) -> Any:
    return aten._scaled_dot_product_flash_attention_for_cpu(*args, **kwargs)


def _spoiled_attention(q: torch.Tensor, k: torch.Tensor) -> Any:
    return _attention(q, k * torch.where(torch.arange(5) == 3, NAN, 1.0)[:, None], q)


def _attention_gradients(q: torch.Tensor, k: torch.Tensor, **mask: torch.Tensor) -> Any:
    given = (q.cos(), q, k, k, *_attention(q, k, k, **mask), 0.0, False)
    return aten._scaled_dot_product_flash_attention_for_cpu_backward(*given, **mask)


CASES: dict[str, tuple[Callable[..., Any], list[torch.Tensor]]] = {
    "softmax": (lambda x: (x.softmax(-1), x.softmax(0)), [ROWS]),
    "log_softmax": (lambda x: (x.log_softmax(-1), x.log_softmax(0)), [ROWS]),
    "amax": (lambda x: (x.amax(-1), x.amax(0, True), x.amax()), [ROWS]),
    "amin": (lambda x: (x.amin(-1), x.amin(0, True), x.amin()), [ROWS]),
    "argmax": (lambda x: (x.argmax(-1), x.argmax(0, True), x.argmax()), [ROWS]),
    "argmin": (lambda x: (x.argmin(-1), x.argmin(0, True), x.argmin()), [ROWS]),
    "max_dim": (lambda x: (*x.max(1), *x.min(1), x.max(), x.min()), [ROWS]),
    "any_all": (lambda x: (x.any(-1), x.all(-1), x.any(), x.all()), [ROWS]),
    "logsumexp": (lambda x: x.logsumexp(-1), [ROWS]),
    "sums": (lambda x: (x.sum(-1), x.mean(0), x.prod(-1), x.var(-1)), [ROWS]),
    "empty_sums": (lambda x: (x.sum(1), x.prod(1), x.mean(1), x.sum((0, 2)), x.any(1)), [EMPTY]),
    "means_of_integers": (
        lambda x: aten.avg_pool2d(x, [2, 2], [], [0, 0], False, True, -3),
        [torch.arange(-18, 18).view(1, 1, 6, 6)],
    ),
    "many_axes": (
        lambda x: (x.sum((0, 2)), x.amax((1, 3), True), x.mean((0, 3)), x.var((0, 2, 3))),
        [IMAGES],
    ),
    "correction": (lambda x: (x.var(2, correction=7), x.std(3, correction=2.5)), [IMAGES]),
    "any_no_dims": (lambda x: aten.any.dims(x, []), [torch.eye(3)]),
    "truth_of_bytes": (lambda x: (x.any(0), x.all()), [torch.eye(3, dtype=torch.uint8)]),
    "batch_norm_inference": (
        lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5),
        [IMAGES, *CHANNELS],
    ),
    "batch_norm_training": (
        lambda x, w, b, m, v: aten._native_batch_norm_legit_functional(
            x, w, b, m, v, True, 0.1, 1e-5
        ),
        [IMAGES, *CHANNELS],
    ),
    "batch_norm_no_stats": (
        lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5),
        [IMAGES],
    ),
    "addmm_ignores_nan": (
        lambda x, y: aten.addmm(x, y, y.t(), beta=0, alpha=2),
        [torch.full((3, 3), NAN), torch.rand(3, 5)],
    ),
    "empty_product": (lambda x, y: x @ y, [torch.zeros(3, 0), torch.zeros(0, 2)]),
    "product_of_bytes": (
        lambda x: x @ x,
        [torch.arange(64, dtype=torch.uint8).reshape(8, 8)],
    ),
    "attention_masked_rows": (lambda q, m: _attention(q, q, q, attn_mask=m), [HEADS, MASK]),
    "attention_causal": (lambda q, k: _attention(q, k, k, 0.0, True), [HEADS, HEADS[:, :, :3]]),
    "attention_nan": (_spoiled_attention, [HEADS, HEADS + 1]),
    "attention_gradients_nan": (
        lambda q: _attention_gradients(q * torch.where(torch.arange(5) == 3, NAN, 1.0)[:, None], q),
        [HEADS],
    ),
    "attention_gradients_masked_rows": (
        lambda q, m: _attention_gradients(q, q, attn_mask=m),
        [HEADS, MASK],
    ),
    "attention_gradients_empty": (_attention_gradients, [HEADS[:0], HEADS[:0]]),
    "attention_shared_keys": (
        lambda q, k: _attention(q, k, k, scale=0.3)[0],
        [HEADS, HEADS[:, :1]],
    ),
}


@cache
def _programs() -> dict[str, Program]:
    from tests.conformance.together import by_turns

    return by_turns(CASES)


@compile_group("special_values", weight=6)
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    program = _programs()[name]
    ours = program.run()
    theirs = program.eager()
    assert [t.shape for t in ours] == [t.shape for t in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, equal_nan=True)
