"""Dynamo's logs hold what they should where they are on, and cost nothing where not; what else is
left out changes nothing."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest
import torch
import torch._dynamo.funcname_cache as names
from torch import Tensor
from torch._dynamo import guards, output_graph, side_effects
from torch._dynamo.variables import higher_order_ops

from torch_max_backend import max_backend
from torch_max_backend.compat import dynamo_shortcuts


class Outer:
    def inner(self, x: Tensor) -> Tensor:
        return x.sin() + 1


class Counted:
    calls = 0


@pytest.fixture
def logs() -> Iterator[Callable[..., None]]:
    yield torch._logging.set_logs
    torch._logging.set_logs()


def _compiled() -> None:
    torch._dynamo.reset()
    names.clearcache()
    torch.compile(lambda x: Outer().inner(x), backend=max_backend)(torch.ones(4))


@pytest.mark.parametrize("log", ["", "trace_call", "trace_source"])
def test_names_are_looked_for_if_a_log_wants_them(
    log: str, logs: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    logs(**({log: True} if log else {}))
    _compiled()
    assert ("(Outer.inner)" in capsys.readouterr().err) == bool(log)
    assert bool(names.cache) == bool(log)


@pytest.mark.parametrize("read", [False, True])
def test_guards_are_timed_if_a_log_wants_it(
    read: bool, logs: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[float] = []

    def theirs(*arguments: object) -> float:
        timed.append(1.0)
        return 1.0

    monkeypatch.setattr(guards, "profile_guard_manager", theirs)
    dynamo_shortcuts.leave_out()
    logs(**({"guards": True} if read else {}))
    _compiled()
    assert bool(timed) == read


@pytest.mark.parametrize("read", [False, True])
def test_what_is_changed_is_told_if_a_log_wants_it(
    read: bool,
    logs: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told: list[str] = []
    owner = side_effects.SideEffects

    def theirs(self: object, var: object) -> str:
        told.append("it changes")
        return told[0]

    monkeypatch.setattr(owner, "_format_side_effect_message", theirs)
    dynamo_shortcuts.leave_out()
    logs(**({"side_effects": True} if read else {}))

    def function(x: Tensor) -> Tensor:
        counted.calls += 1
        return x + 1

    counted = Counted()
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="eager")
    for calls in (1, 2):
        compiled(torch.ones(2))
        assert counted.calls == calls
    assert bool(told) == read
    assert ("it changes" in capsys.readouterr().err) == read


def test_a_local_map_is_known() -> None:
    func_map = pytest.importorskip("torch.distributed.tensor.experimental._func_map")
    dynamo_shortcuts.leave_out()
    kind = higher_order_ops.LocalMapWrappedHigherOrderVariable
    assert not kind.should_wrap_in_hop(func_map._local_map_wrapped)
    with kind.enable():
        assert kind.should_wrap_in_hop(func_map._local_map_wrapped)
        assert not kind.should_wrap_in_hop(func_map.local_map)


def test_tracebacks_are_those_of_python() -> None:
    def stack() -> list[traceback.FrameSummary]:
        return list(traceback.extract_stack())

    dynamo_shortcuts.leave_out()
    kept = output_graph.traceback.StackSummary
    assert kept is not traceback.StackSummary
    for frames in (stack(), stack(), [*stack(), *stack()[-1:] * 9]):
        expected = traceback.StackSummary.from_list(frames).format()
        assert kept.from_list(frames).format() == expected
    # Another text under the same name and number.
    for text in ("x = a + b", "y = [a, b]"):
        frame = traceback.FrameSummary("<cell>", 3, "f", line=text)
        assert kept.from_list([frame]).format() == [f'  File "<cell>", line 3, in f\n    {text}\n']


def test_operators_know_the_users_lines() -> None:
    stacks: list[str] = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        stacks.extend(n.stack_trace or "" for n in graph.graph.nodes if n.op == "call_method")
        return graph

    dynamo_shortcuts.leave_out()
    torch._dynamo.reset()
    torch.compile(lambda x: Outer().inner(x), backend=backend)(torch.ones(4))
    assert "return x.sin() + 1" in stacks[0]
    assert "Outer().inner(x)" in stacks[0]
