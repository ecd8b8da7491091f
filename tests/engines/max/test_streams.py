"""The order of torch's streams and MAX's. Streams and events are stand-ins."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch


class _Stream:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def wait_event(self, event: _Event) -> None:
        self.log.append(f"{self.name} waits for {event.of}")


class _Event:
    of = ""

    def record(self, stream: _Stream) -> None:
        self.of = stream.name


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What waits for what, of one device."""
    from max import driver

    from torch_max_backend.engines.max import streams

    found: list[str] = []

    class Queue:
        native_stream_handle = 1234

    class Accelerator:
        default_queue = Queue

        def __init__(self, index: int) -> None:
            assert index == 1

    def external(handle: int, device: int) -> _Stream:
        assert (handle, device) == (1234, 1)
        return _Stream("MAX", found)

    monkeypatch.setattr(driver, "Accelerator", Accelerator)
    monkeypatch.setattr(torch.cuda, "ExternalStream", external)
    monkeypatch.setattr(torch.cuda, "Event", _Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: _Stream("torch", found))
    streams._order.cache_clear()
    yield found
    streams._order.cache_clear()


class _Buffer:
    is_host = False

    class device:
        id = 1


def test_a_model_runs_between_what_torch_enqueues(log: list[str]) -> None:
    from torch_max_backend.engines.max.streams import orders_of

    (order,) = orders_of([_Buffer(), _Buffer()])
    order.before()
    log.append("model")
    order.after()
    assert log == ["MAX waits for torch", "model", "torch waits for MAX"]


def test_each_call_is_in_order(log: list[str]) -> None:
    """The first call finds out which devices take part, by its results too."""
    from torch_max_backend.engines.max.executable import Executable

    class OnCpu(_Buffer):
        is_host = True

    def execute(buffers: list[Any]) -> list[Any]:
        log.append("model")
        return [_Buffer()]

    executable: Any = SimpleNamespace(_orders=None, _execute=execute)
    for _ in range(2):
        Executable._in_order(executable, [OnCpu()])
    after = ["model", "torch waits for MAX"]
    assert log == [*after, "MAX waits for torch", *after]
