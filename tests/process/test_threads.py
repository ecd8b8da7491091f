"""Threads that compile, load and call at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.process.program import Net, compiled, expected, rows
from tests.support.groups import compile_group

THREADS, CALLS = 6, 30


def together(work: Callable[[int], None]) -> None:
    """Do something in several threads that begin at once."""
    begin = threading.Barrier(THREADS, timeout=600)

    def run(thread: int) -> None:
        begin.wait()
        with torch.no_grad():
            work(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run, thread) for thread in range(THREADS)]:
            done.result(1200)


def own_code(net: Net) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function that calls the net; Dynamo finds the graph of no other one for it."""
    names: dict[str, Any] = {"net": net}
    exec("def call(x): return net(x)", names)
    return names["call"]


@compile_group("processes")
def test_threads_compile_models_and_call_them(
    loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_max_backend.engines.max import loading

    load, artifacts = loading.load_serialized, []

    def counted(artifact: bytes) -> Any:
        artifacts.append(artifact)
        return load(artifact)

    monkeypatch.setattr(loading, "load_serialized", counted)
    nets = [Net(1 + thread) for thread in range(THREADS)]

    def work(thread: int) -> None:
        function = compiled(own_code(nets[thread]))  # type: ignore[arg-type]
        for i in range(CALLS):
            x = rows(2 + (thread + i) % 5)
            torch.testing.assert_close(function(x), expected(nets[thread], x))

    together(work)
    assert [net.calls.item() for net in nets] == [CALLS] * THREADS
    assert len(artifacts) == 1, "equal graphs are loaded once"


@compile_group("processes")
def test_threads_share_a_model_that_updates_a_buffer(loaded: None) -> None:
    net = Net()
    function = compiled(net)

    def work(thread: int) -> None:
        for i in range(CALLS):
            x = rows(2 + (thread + i) % 5) * (thread + 1)
            torch.testing.assert_close(function(x), expected(net, x))

    together(work)
    # Updates are lost where calls overlap, as in eager PyTorch, but none is made twice.
    assert 1 <= net.calls.item() <= THREADS * CALLS
    net.calls.zero_()
    with torch.no_grad():
        function(rows())
    assert net.calls.item() == 1


def test_a_graph_that_waits_for_its_first_call_is_compiled_once() -> None:
    from torch_max_backend.backend import _Lazy

    made: list[int] = []
    second = threading.Event()

    def compile() -> Callable[[list[Any]], list[Any]]:
        made.append(1)
        second.wait(1)  # the others come meanwhile
        return lambda arguments: arguments

    lazy = _Lazy(compile)

    def work(thread: int) -> None:
        assert lazy([thread]) == [thread]

    together(work)
    assert made == [1]


@pytest.mark.xdist_group("compile-0")
def test_shared_memory_is_found_while_another_thread_finds_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from max.driver import Buffer

    from torch_max_backend.engines.max import executable
    from torch_max_backend.graph.layout import Layout
    from torch_max_backend.graph.signature import ModelInput, Output, Signature

    def model(buffers: list[Any]) -> list[Any]:
        # The second and third result are one piece of memory.
        once = Buffer.from_dlpack(torch.zeros(3))
        return [Buffer.from_dlpack(torch.zeros(3)), once, once]

    signature = Signature(
        arguments=1,
        inputs=[ModelInput("tensor", 0)],
        outputs=[Output("value", i) for i in range(3)],
        layouts=[Layout()] * 3,
    )
    run = executable.Executable(SimpleNamespace(_execute_device_tensors=model), signature, {})
    slow = threading.Event()
    memory, waits = executable.memory, threading.local()

    def late(buffer: Any) -> tuple[int, int]:
        if getattr(waits, "yes", False):
            slow.set()
            assert other_done.wait(600)
        return memory(buffer)

    other_done = threading.Event()
    monkeypatch.setattr(executable, "memory", late)
    results: list[list[torch.Tensor]] = []

    def first() -> None:
        waits.yes = True
        results.append(run([torch.ones(3)]))

    thread = threading.Thread(target=first)
    thread.start()
    assert slow.wait(600)
    results.append(run([torch.ones(3)]))
    other_done.set()
    thread.join(600)
    waits.yes = False
    results.append(run([torch.ones(3)]))
    for outputs in results:
        assert len({t.data_ptr() for t in outputs}) == 3
