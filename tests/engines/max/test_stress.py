"""Many threads call a model while it is compiled in the background and takes over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.xdist_group("compile-0")


class Slow:
    """A stand-in for the compiler: ready when told; its functions are eager, counted."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.jobs = 0
        self.calls = 0
        self._lock = threading.Lock()

    def function(self, job: Any) -> Callable[[list[Any]], list[Any]]:
        with self._lock:
            self.jobs += 1
        assert self.ready.wait(600)
        time.sleep(0.1)

        def serve(arguments: list[Any]) -> list[Any]:
            with self._lock:
                self.calls += 1
            results = list(job.trace.module(*arguments))
            arguments.clear()  # as compiled functions may
            return results

        return serve


@pytest.fixture
def slow(private_cache: Path, max_engine: None, monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow()
    monkeypatch.setattr(
        "torch_max_backend.driver.job.Job.functions", lambda job: [slow.function(job)]
    )
    return slow


def _broken(x: Tensor) -> Tensor:
    y = torch.sin(x) * 2
    torch._dynamo.graph_break()
    return torch.softmax(y + x.shape[0], -1) + x.shape[1]


def _in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y.mul_(3)
    return y + x


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    from torch_max_backend import max_backend

    options = {"background": True, "cache": False}
    return torch.compile(function, backend=max_backend, dynamic=True, options=options)


def _hammer(slow: Slow, call: Callable[[int, int], None]) -> None:
    """Call from eight threads, before, in and after the switch."""
    from torch_max_backend.driver.background import wait_for_all

    def work(thread: int) -> int:
        count = 0
        for i in range(40):
            call(thread, i)
            count += 1
        slow.ready.set()
        for i in range(40, 240):
            call(thread, i)
            count += 1
        return count

    call(0, 0)
    assert slow.calls == 0
    with ThreadPoolExecutor(8) as pool:
        counts = [c.result(1200) for c in [pool.submit(work, thread) for thread in range(8)]]
    assert counts == [240] * 8
    wait_for_all()
    before = slow.calls
    call(1, 1)
    assert slow.calls > before


@pytest.mark.parametrize("function", [_broken, _in_place])
def test_no_call_is_wrong_or_lost(slow: Slow, function: Callable[[Tensor], Tensor]) -> None:
    compiled = _compiled(function)

    def call(thread: int, i: int) -> None:
        x = torch.full((2 + i % 7, 3 + thread % 3), float(thread * 1000 + i))
        kept = x.clone()
        torch.testing.assert_close(compiled(x), function(kept))
        torch.testing.assert_close(x, kept)

    _hammer(slow, call)
    assert slow.jobs >= (2 if function is _broken else 1)


def test_no_training_step_is_wrong_or_lost(slow: Slow) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    compiled = _compiled(model)
    weights = list(model.parameters())

    def gradients(function: Callable[..., Any], x: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(function(x).square().sum(), weights)

    def call(thread: int, i: int) -> None:
        x = torch.linspace(-1, 1 + thread, 4 * (2 + i % 5)).reshape(-1, 4)
        for ours, theirs in zip(gradients(compiled, x), gradients(model, x), strict=True):
            torch.testing.assert_close(ours, theirs)

    _hammer(slow, call)
    assert slow.jobs >= 2  # forward and backward


def test_a_compile_that_fails_under_load_loses_no_call(
    slow: Slow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from torch_max_backend.driver.background import wait_for_all

    def fail(job: Any) -> Any:
        assert slow.ready.wait(600)
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("torch_max_backend.driver.job.Job.functions", fail)
    compiled = _compiled(_in_place)

    def work(thread: int) -> None:
        for i in range(200):
            x = torch.full((2 + i % 5, 3), float(thread * 1000 + i))
            torch.testing.assert_close(compiled(x), _in_place(x))
            if i == 100:
                slow.ready.set()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, thread) for thread in range(8)]:
            done.result(1200)
    wait_for_all()
    assert "no such kernel" in caplog.text
