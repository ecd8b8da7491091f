"""Memory of large results is used again, and only where nobody can tell."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_max_backend.runtime import large

SHAPE = (1024, 1500)
STRIDES = (1500, 1)


def _made() -> torch.Tensor:
    return large.empty(SHAPE, STRIDES, torch.float32)


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_kept", large._Kept())


def test_what_was_dropped_is_used_again() -> None:
    first = _made()
    address = first.data_ptr()
    del first
    assert _made().data_ptr() == address


HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "itself": lambda t: t,
    "a view": lambda t: t[3:5].T,
    "an array of numpy": lambda t: t.numpy(),
    "its storage": lambda t: t.untyped_storage(),
    "DLPack": lambda t: t.__dlpack__(),
    "autograd": lambda t: torch.ones(SHAPE, requires_grad=True) * t,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_what_somebody_holds_is_not(holder: str) -> None:
    first = _made()
    address = first.data_ptr()
    held = HOLDERS[holder](first)
    del first
    second = _made()
    assert second.data_ptr() != address
    del held, second
    assert _made().data_ptr() == address or _made().data_ptr() == address


def test_memory_that_another_process_may_read_is_not() -> None:
    first = _made().fill_(7)
    first.share_memory_()
    address = first.data_ptr()
    del first
    assert _made().data_ptr() != address


def test_little_is_kept_idle() -> None:
    sizes = [large.LARGE * k for k in range(1, 7)]
    for size in sizes:
        large.empty((size,), (1,), torch.uint8)
    large.empty((large.LARGE * 7,), (1,), torch.uint8)
    assert sum(given.size for given in large._kept.idle()) <= large.IDLE


def test_what_was_in_use_together_is_used_again() -> None:
    """As the gradients of a step are, which all go before the next step makes them."""
    sizes = [large.LARGE * (k % 5 + 4) for k in range(12)]

    def step() -> set[int]:
        made = [large.empty((s,), (1,), torch.uint8) for s in sizes]
        return {t.data_ptr() for t in made}

    assert step() == step() == step()


def test_what_was_in_use_together_once_is_forgotten() -> None:
    made = [large.empty((large.IDLE,), (1,), torch.uint8) for _ in range(4)]
    del made
    for k in range(1, 80):
        large.empty((large.LARGE + k * 4096,), (1,), torch.uint8)
    assert sum(given.size for given in large._kept.idle()) <= 1.2 * large.IDLE


def test_what_is_not_used_for_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large, "_SWEEP", 8)
    made = [large.empty((large.IDLE,), (1,), torch.uint8) for _ in range(4)]
    del made
    for _ in range(20):
        _made()
    assert sum(given.size for given in large._kept.idle()) < large.IDLE


def test_a_result_can_be_resized() -> None:
    result = _made()
    result.resize_(2000, 2000).fill_(1)
    assert result.sum() == 4_000_000
    del result
    assert _made().shape == SHAPE


def test_memory_made_for_inference_serves_training() -> None:
    with torch.inference_mode():
        first = _made()
    address = first.data_ptr()
    del first
    second = _made().fill_(2)
    assert second.data_ptr() == address
    weight = torch.ones(SHAPE, requires_grad=True)
    (weight * second).sum().backward()
    assert weight.grad is not None
    assert bool((weight.grad == 2).all())


def test_memory_serves_another_dtype() -> None:
    first = _made()
    address = first.data_ptr()
    del first
    second = large.empty((*SHAPE, 2), (2 * SHAPE[1], 2, 1), torch.bfloat16)
    assert (second.data_ptr(), second.dtype) == (address, torch.bfloat16)
    assert _made().data_ptr() != address


def test_results_in_the_same_memory_count_their_versions_apart() -> None:
    first = _made().fill_(1)
    version = first._version
    del first
    assert _made()._version < version


def test_threads_are_given_memory_of_their_own() -> None:
    wrong = []

    def use(number: int) -> None:
        for _ in range(200):
            result = _made().fill_(number)
            if not bool((result == number).all()):
                wrong.append(number)

    threads = [threading.Thread(target=use, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_loop_does_not_grow() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + 1

    compiled = torch.compile(function, backend="max", options={"engine": "steps"})
    x = torch.randn(SHAPE)
    places = set()
    for _ in range(30):
        result = compiled(x)
        places.add(result.data_ptr())
        torch.testing.assert_close(result, function(x))
        kept = compiled(x + 1)
        torch.testing.assert_close(kept, function(x + 1))
        torch.testing.assert_close(result, function(x))
        del result, kept
    assert len(places) <= 2


def test_graphs_share_the_memory_of_their_temporaries() -> None:
    more, less = large.IDLE, large.LARGE
    first = large.temporary(more)
    address = first.data_ptr()
    while_it_runs = large.temporary(less)
    assert while_it_runs.data_ptr() != address
    del first, while_it_runs
    assert large.temporary(more).data_ptr() == address
    larger = large.temporary(2 * more)
    del larger
    assert [g.size for g in large._kept.idle()] == [2 * more]


def test_a_graph_that_ran_once_keeps_no_memory() -> None:
    size = 2 << 20

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).softmax(-1).sort().values.sum(-1)

    x = torch.ones(1024, size // 1024)[:, :1024].contiguous()
    compiled = torch.compile(function, backend="max", options={"engine": "steps"})
    compiled(x)
    assert not large._kept.idle()
    torch.testing.assert_close(compiled(x), function(x))
    assert sum(given.size for given in large._kept.idle()) >= 4 * x.numel()
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert not large._kept.idle()
