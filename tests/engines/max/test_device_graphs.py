"""``mode="reduce-overhead"``: when graphs are captured, replayed and given up, on a stand-in."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from torch_max_backend.engines.max import device_graphs
from torch_max_backend.engines.max.device_graphs import MOST_GRAPHS, DeviceGraphs, replayable
from torch_max_backend.graph.signature_schema import ModelInput, Signature


class _Buffer:
    is_host = False

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def _data_ptr(self) -> int:
        return self.tensor.data_ptr()

    def copy(self) -> _Buffer:
        return _Buffer(self.tensor.clone())


class _Model:
    """Computes x * w + 1; a replay uses the buffers that were captured, as a GPU does.

    Attributes:
        frozen: Whether a replay repeats the results of the capture.
    """

    def __init__(self) -> None:
        self.frozen = False
        self.runs: list[str] = []
        self.captured: dict[int, tuple[tuple[_Buffer, ...], _Buffer]] = {}

    def execute(self, buffers: list[Any]) -> list[Any]:
        self.runs.append("plain")
        return [_Buffer(buffers[0].tensor * buffers[1].tensor + 1)]

    def capture(self, key: int, *buffers: _Buffer) -> list[_Buffer]:
        self.runs.append("capture")
        result = _Buffer(buffers[0].tensor * buffers[1].tensor + 1)
        self.captured[key] = buffers, result
        return [result]

    def replay(self, key: int, *buffers: _Buffer) -> None:
        self.runs.append("replay")
        given, result = self.captured[key]
        assert all(a is b for a, b in zip(given, buffers, strict=True))
        if not self.frozen:
            result.tensor.copy_(given[0].tensor * given[1].tensor + 1)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> _Model:
    def copies(into: list[_Buffer], given: list[_Buffer]) -> None:
        for a, b in zip(into, given, strict=True):
            a.tensor.copy_(b.tensor)

    driver = pytest.importorskip("max.driver")
    monkeypatch.setattr(driver, "batch_inplace_copy", copies)
    monkeypatch.setattr(device_graphs, "to_tensor", lambda buffer: buffer.tensor)
    return _Model()


def _call(graphs: DeviceGraphs, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    (result,) = graphs([_Buffer(x), _Buffer(w)])  # type: ignore[list-item]
    assert torch.equal(result.tensor, x * w + 1)
    return result.tensor


def test_a_graph_is_replayed_once_it_is_trusted(model: _Model) -> None:
    graphs = DeviceGraphs(model, model.execute, [0])  # type: ignore[arg-type]
    w = torch.randn(3)
    results = [_call(graphs, torch.randn(3), w) for _ in range(5)]
    assert model.runs == ["plain", "capture", "plain", "replay", "plain", "replay", "replay"]
    # Results belong to the caller.
    assert len({r.data_ptr() for r in results}) == 5


def test_shapes_and_weights_have_graphs_of_their_own(model: _Model) -> None:
    graphs = DeviceGraphs(model, model.execute, [0])  # type: ignore[arg-type]
    one, other = torch.randn(1), torch.randn(1)
    for w in (one, other):
        for size in (2, 5):
            for _ in range(4):
                _call(graphs, torch.randn(size), w)
    assert model.runs.count("capture") == 4
    for size in range(10, 10 + 2 * MOST_GRAPHS):
        for _ in range(2):
            _call(graphs, torch.randn(size), one)
    assert model.runs.count("capture") == MOST_GRAPHS


def test_a_wrong_replay_is_never_used(model: _Model, caplog: pytest.LogCaptureFixture) -> None:
    model.frozen = True
    graphs = DeviceGraphs(model, model.execute, [0])  # type: ignore[arg-type]
    w = torch.randn(3)
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        for _ in range(5):
            _call(graphs, torch.randn(3), w)
    assert "other results" in caplog.text
    assert model.runs[-2:] == ["plain", "plain"]


def test_a_failing_capture_leaves_plain_runs(
    model: _Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*args: Any) -> Any:
        raise RuntimeError("host synchronization")

    monkeypatch.setattr(model, "capture", fails)
    graphs = DeviceGraphs(model, model.execute, [0])  # type: ignore[arg-type]
    w = torch.randn(3)
    with caplog.at_level(logging.WARNING, "torch_max_backend"):
        for _ in range(4):
            _call(graphs, torch.randn(3), w)
    assert model.runs == ["plain"] * 4
    assert caplog.text.count("host synchronization") == 1


def test_on_the_host_nothing_is_captured(model: _Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Buffer, "is_host", True)
    graphs = DeviceGraphs(model, model.execute, [0])  # type: ignore[arg-type]
    for _ in range(4):
        _call(graphs, torch.randn(3), torch.ones(3))
    assert model.runs == ["plain"] * 4


@pytest.mark.parametrize(
    ("signature", "fits"),
    [
        (Signature(1, inputs=[ModelInput("tensor", 0), ModelInput("constant")]), True),
        (Signature(1, inputs=[ModelInput("tensor", 0, mutated=True)]), False),
        (Signature(1, inputs=[ModelInput("seed", source="cuda")]), False),
        (Signature(1, inputs=[ModelInput("scalar", source="d0")]), False),
        (Signature(1, inputs=[ModelInput("tensor", 0)], copy_back=[(0, 0)]), False),
        (Signature(1, inputs=[ModelInput("tensor", 0)], data_symbols={"d0": (0, 0)}), False),
    ],
)
def test_what_may_be_replayed(signature: Signature, fits: bool) -> None:
    assert replayable(signature) == fits
