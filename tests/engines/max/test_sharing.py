"""Equal graphs of one process: one compile, one model, each with its own arguments."""

from __future__ import annotations

import gc
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.process.program import Net, expected, rows
from tests.support.groups import compile_group
from tests.support.module_cache import kept_compiles, kept_elsewhere
from tests.tracing import traced


class Stand:
    """A stand-in for the compiler: each model doubles its first input."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.fails = 0
        self.started = threading.Event()

    def make(self, jobs: list[Any]) -> list[Any]:
        from max.driver import Buffer

        self.made += [job.entry for job in jobs]
        self.started.set()
        time.sleep(0.3)
        if self.fails:
            self.fails -= 1
            raise ValueError("not this time")

        def double(buffers: list[Any]) -> list[Any]:
            return [Buffer.from_dlpack(torch.from_dlpack(buffers[0]) * 2)]

        return [SimpleNamespace(_execute_device_tensors=double) for _ in jobs]


@pytest.fixture
def stand(private_cache: Path, max_engine: None, monkeypatch: pytest.MonkeyPatch) -> Stand:
    stand = Stand()
    monkeypatch.setattr("torch_max_backend.driver.job.compile_together", stand.make)
    return stand


def _compile(size: int, **options: bool) -> Callable[[list[Any]], list[Any]]:
    from torch_max_backend.driver.strategies import compile_graph
    from torch_max_backend.options import Options

    with _tracing:
        module = traced(lambda x: x + x, torch.ones(size))
    return compile_graph(module, (), Options(**options)).function


# Dynamo's reset is for the whole process.
_tracing = threading.Lock()


@pytest.mark.xdist_group("compile-0")
@pytest.mark.parametrize("cache", [True, False])
def test_equal_graphs_share_a_model(stand: Stand, cache: bool) -> None:
    functions = [_compile(11, cache=cache) for _ in range(6)]
    assert len(stand.made) == 1
    assert len(set(map(id, functions))) == 6
    for i, function in enumerate(functions):
        assert function([torch.full((11,), float(i))])[0].tolist() == [2.0 * i] * 11
    _other = _compile(12, cache=cache)
    assert len(set(stand.made)) == 2


@pytest.mark.xdist_group("compile-0")
def test_a_model_that_nobody_uses_is_freed(stand: Stand) -> None:
    function = _compile(13, cache=False)
    del function
    gc.collect()
    function = _compile(13, cache=False)
    assert len(stand.made) == 2
    assert function([torch.ones(13)])[0].tolist() == [2.0] * 13


@pytest.mark.xdist_group("compile-0")
def test_what_must_be_on_disk_is_not_answered_by_what_is_not(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    functions = [_compile(14, cache=False), _compile(14, cache=True)]
    monkeypatch.setenv("TORCH_MAX_BACKEND_CACHE_DIR", str(tmp_path / "another"))
    functions.append(_compile(14, cache=True))
    assert len(stand.made) == 3
    assert len(set(stand.made)) == 1


@pytest.mark.xdist_group("compile-0")
@pytest.mark.parametrize("background", [False, True])
def test_threads_with_equal_graphs_wait_for_the_first(stand: Stand, background: bool) -> None:
    from torch_max_backend.driver.background import Background

    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(_compile, 15, cache=False, background=background) for _ in range(4)]
        functions = [m.result(600) for m in made]
    for function in functions:
        # A thread that came late was given the model itself.
        if isinstance(function, Background):
            assert function.wait(600)
        assert function([torch.ones(15)])[0].tolist() == [2.0] * 15
    assert len(stand.made) == 1


@pytest.mark.xdist_group("compile-0")
def test_if_the_first_fails_the_next_one_tries(stand: Stand) -> None:
    stand.fails = 1
    with ThreadPoolExecutor(3) as pool:
        made = [pool.submit(_compile, 16, cache=False) for _ in range(3)]
        errors = [m.exception(600) for m in made]
    assert [type(e) for e in errors if e is not None] == [ValueError]
    assert len(stand.made) == 2


class AtFirstCall:
    """``compile_graph``, put off: Dynamo lets one thread at a time into a backend."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, module: Any, static: Any, options: Any) -> Any:
        from torch_max_backend.backend import _Lazy
        from torch_max_backend.driver.strategies import compile_graph

        self.graphs += 1
        made = _Lazy(lambda: compile_graph(module, static, options).function)
        return SimpleNamespace(function=made, key="")


@pytest.fixture
def kept() -> Iterator[None]:
    with kept_compiles(), kept_elsewhere():
        yield


# `kept` comes first, so that what the test replaces of it is put back before it ends.
@compile_group("parallel", weight=2)
def test_threads_compile_at_once_and_share_models(
    kept: None,
    private_cache: Path,
    tmp_path: Path,
    max_engine: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch_max_backend import max_backend
    from torch_max_backend.engines.max import module, worker

    monkeypatch.setenv("TORCH_MAX_BACKEND_COMPILE_JOBS", "2")
    # Slots of its own: it needs two at once, whatever else compiles on the machine.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    where: list[str] = []
    elsewhere, here = worker.compile_elsewhere, module.compile_module
    both = threading.Barrier(2, timeout=600)

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:
            where.append(name)
            both.wait()  # each waits until the other is at it
            return function(*args, **kwargs)

        return compile

    monkeypatch.setattr(worker, "compile_elsewhere", counted("elsewhere", elsewhere))
    monkeypatch.setattr(module, "compile_module", counted("here", here))
    late = AtFirstCall()
    monkeypatch.setattr("torch_max_backend.backend.compile_graph", late)
    options = {"cache": False}
    nets = [Net(scale) for scale in (1.0, 2.0, 3.0)]
    # Code of its own each: Dynamo would find the graph of a net for another one itself.
    calls = [lambda x: nets[0](x), lambda x: nets[1](x), lambda x: nets[2](x)]
    compiled = [torch.compile(c, backend=max_backend, dynamic=True, options=options) for c in calls]
    # MAX compiles both graphs for other tests, too.
    other = torch.compile(
        lambda x, y: (x + y, x.t()), backend=max_backend, dynamic=True, options=options
    )

    @torch.no_grad()
    def first(function: Callable[..., Any], *more: Tensor) -> Any:
        return function(rows(), *more)

    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(first, compiled[0]), pool.submit(first, other, torch.ones(8))]
        results = [m.result(600) for m in made]
    assert sorted(where) == ["elsewhere", "here"]
    torch.testing.assert_close(results[0], expected(nets[0], rows()))
    torch.testing.assert_close(results[1], (rows() + 1, rows().t()))

    for function in compiled[1:]:
        first(function)
    assert late.graphs == 4
    assert len(where) == 2

    @torch.no_grad()
    def call(thread: int) -> None:
        for i in range(150):
            which = (thread + i) % 3
            x = rows(2 + (7 * thread + i) % 23) * (thread + 1)
            torch.testing.assert_close(compiled[which](x), expected(nets[which], x))

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(call, thread) for thread in range(4)]:
            done.result(600)
    assert len(where) == 2
