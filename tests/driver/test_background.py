"""Serving with eager PyTorch until a model is ready."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("compile-0")


def _eager(arguments: list[Any]) -> list[Any]:
    return [("eager", *arguments)]


def _compiled(arguments: list[Any]) -> list[Any]:
    return [("compiled", *arguments)]


def test_switches_when_the_model_is_ready() -> None:
    from torch_max_backend.driver.background import Background

    ready = threading.Event()

    def compile() -> Any:
        ready.wait(600)
        return _compiled

    function = Background(_eager, compile)
    assert function([1]) == [("eager", 1)]
    assert not function.wait(0)
    ready.set()
    assert function.wait(600)
    assert function([2]) == [("compiled", 2)]


def test_many_threads_lose_no_call_in_the_switch() -> None:
    from torch_max_backend.driver.background import Background

    started, ready = threading.Event(), threading.Event()
    wrong: list[Any] = []
    served: set[str] = set()

    def compile() -> Any:
        ready.wait(600)
        return _compiled

    function = Background(_eager, compile)

    def call(number: int) -> None:
        for i in range(4000):
            arguments = [number, i]
            (result,) = function(arguments)
            if result[1:] != (number, i):
                wrong.append(result)
            served.add(result[0])
            if i == 1000:
                started.set()
            if i == 2000:
                function.wait(600)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    started.wait(600)
    ready.set()
    for thread in threads:
        thread.join(1200)
    assert not wrong
    assert served == {"eager", "compiled"}


def test_a_failure_is_told_once_and_eager_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    from torch_max_backend.driver.background import Background

    def compile() -> Any:
        raise RuntimeError("no such kernel")

    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        function = Background(_eager, compile)
        assert function.wait(600)
        assert [function([i]) for i in range(3)] == [[("eager", i)] for i in range(3)]
    (record,) = [r for r in caplog.records if "no such kernel" in r.getMessage()]
    assert record.levelno == logging.WARNING
