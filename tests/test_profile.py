"""What TORCH_MAX_BACKEND_PROFILE prints, and that nothing of it is there when it is off."""

from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from torch_max_backend import profile

pytestmark = pytest.mark.xdist_group("compile-0")


@pytest.fixture(autouse=True)
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[profile.Graph]:
    """The table's graphs, none at first; nothing is printed when the tests end."""
    kept: list[profile.Graph] = []
    monkeypatch.setattr(profile, "_graphs", kept)
    monkeypatch.setattr(profile, "atexit", SimpleNamespace(register=lambda function: None))
    return kept


def _clock(**seconds: float) -> profile.Clock:
    clock = profile.Clock()
    clock.seconds.update(seconds)
    return clock


def _cells(line: str) -> list[str]:
    return line.split()


def _row(line: str, header: str) -> dict[str, str]:
    return dict(zip(_cells(header), _cells(line), strict=True))


def test_a_clock_adds_up_the_laps_of_a_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.5, 11.5, 11.75])
    monkeypatch.setattr(profile, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    clock = profile.Clock()
    clock.lap("load")
    clock.restart()  # what went before was waiting
    clock.lap("load")
    assert clock.seconds == {"load": 0.75}
    assert str(clock) == "load 0.750 s"


def test_the_table_has_a_row_for_each_graph_and_a_total() -> None:
    first = profile.start(_clock(analyse=0.5, compile=12.25), "compiled", 41)
    profile.start(_clock(load=0.125), "loaded")
    first.calls, first.bind, first.run, first.rebuild = 4, 0.004, 0.040, 0.008
    header, one, two, total = profile.table().splitlines()
    one, two = _row(one, header), _row(two, header)
    assert (one["graph"], one["operators"], one["origin"]) == ("1", "41", "compiled")
    assert (one["analyse"], one["compile"], one["load"]) == ("0.500", "12.250", "-")
    assert (one["calls"], one["total"], one["mean"]) == ("4", "52.000", "13.000")
    assert (one["bind"], one["run"], one["rebuild"]) == ("1.000", "10.000", "2.000")
    assert (two["graph"], two["operators"], two["origin"]) == ("2", "-", "loaded")
    assert (two["load"], two["calls"], two["mean"]) == ("0.125", "0", "-")
    assert _cells(total)[:4] == ["total", "41", "-", "0.500"]
    assert _cells(total)[-6:] == ["4", "52.000", "13.000", "1.000", "10.000", "2.000"]


def test_the_columns_are_aligned() -> None:
    profile.start(_clock(compile=123.0), "background", 12345).calls = 7
    profile.start(_clock(load=0.1), "shared", 3).eager = 1234567
    lines = profile.table().splitlines()
    # Numbers end where their column's title ends.
    for title in ("operators", "compile", "calls", "eager"):
        end = lines[0].index(f" {title}") + 1 + len(title)
        for line in lines[1:]:
            assert line[end - 1] != " ", line
            assert line[end : end + 1] in ("", " "), line


def test_eager_calls_are_a_column_only_in_the_background() -> None:
    graph = profile.start(_clock(), "background", 1)
    assert "eager" not in profile.table()
    assert profile.counted(graph, lambda arguments: [arguments])([1]) == [[1]]
    header, row, total = profile.table().splitlines()
    assert _row(row, header)["eager"] == _cells(total)[-1] == "1"


class _Parts:
    """An executable that takes its time before, in and after the model."""

    def __init__(self, fails: bool = False) -> None:
        self._execute = self._model
        self._fails = fails

    def _model(self, buffers: list[Any]) -> list[Any]:
        time.sleep(0.06)
        if self._fails:
            raise ValueError("no")
        return buffers

    def __call__(self, arguments: list[Any]) -> list[Any]:
        time.sleep(0.02)
        results = self._execute(arguments)
        time.sleep(0.04)
        return results


def test_a_call_is_split_where_max_begins_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    graph = profile.start(_clock(), "compiled", 1)
    assert profile.timed(graph, _Parts())([1]) == [1]
    assert graph.calls == 1
    assert graph.bind >= 0.02
    assert graph.run >= 0.06
    assert graph.rebuild >= 0.04
    assert graph.total == pytest.approx(graph.bind + graph.run + graph.rebuild)
    assert "call of graph 1: " in capsys.readouterr().err


def test_a_failing_call_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    graph = profile.start(_clock(), "compiled", 1)
    with pytest.raises(ValueError, match="no"):
        profile.timed(graph, _Parts(fails=True))([1])
    assert graph.calls == 1
    assert graph.run >= 0.06


def _executable(record: profile.Graph | None) -> tuple[Any, Any]:
    """A function for a model that doubles, and the model's own function."""
    from max.driver import Buffer

    from torch_max_backend.driver.loading import executable
    from torch_max_backend.graph.signature import ModelInput, Output, Signature
    from torch_max_backend.graph.signature_schema import Layout

    def double(buffers: list[Any]) -> list[Any]:
        return [Buffer.from_dlpack(torch.from_dlpack(buffers[0]) * 2)]

    signature = Signature(
        arguments=1,
        inputs=[ModelInput("tensor", 0)],
        outputs=[Output("value", 0)],
        layouts=[Layout()],
    )
    model: Any = SimpleNamespace(_execute_device_tensors=double)
    return executable({"a key": model}, signature, {}, (), record), double


def test_real_executables_are_split_too(capsys: pytest.CaptureFixture[str]) -> None:
    graph = profile.start(_clock(), "compiled", 1)
    function, _ = _executable(graph)
    for i in range(3):
        (result,) = function([torch.full((2,), float(i))])
        assert result.tolist() == [2.0 * i] * 2
    assert graph.calls == 3
    assert min(graph.bind, graph.run, graph.rebuild) > 0
    assert capsys.readouterr().err.count("call of graph 1") == 3


def test_torchs_profiler_shows_the_parts_of_a_call() -> None:
    function, _ = _executable(None)
    x = torch.ones(2)
    with torch.profiler.profile() as recorded:
        function([x])
    ranges = [e.name for e in recorded.events() if e.name.startswith("torch_max_backend")]
    parts = [f"torch_max_backend {part}" for part in ("bind", "run", "rebuild")]
    assert [name for name in ranges if name in parts] == parts
    assert ranges.count(f"torch_max_backend graph {function._number}") == 1


def test_tracing_ends_where_the_first_clock_starts() -> None:
    with profile.tracing():
        time.sleep(0.02)
        first, second = profile.Clock(), profile.Clock()
    assert first.seconds["trace"] >= 0.02
    assert "trace" not in second.seconds
    with profile.tracing():
        pass
    assert "trace" not in profile.Clock().seconds


def test_nothing_is_in_the_way_when_it_is_off() -> None:
    from torch_max_backend.engines.max.executable import Executable

    function, double = _executable(None)
    assert type(function) is Executable
    assert function._execute is double


@pytest.mark.parametrize("used", [True, False])
def test_the_table_is_printed_at_exit_if_a_graph_was_profiled(used: bool) -> None:
    source = "from torch_max_backend import profile\n"
    if used:
        source += "profile.start(profile.Clock(), 'compiled', 3)\n"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True
    )
    assert ("torch_max_backend: graphs of this process" in done.stderr) == used
    assert ("operators" in done.stderr) == used
    assert done.stdout == ""
