"""Branches and loops between the rows of one table."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops.map import map as map_over
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop

from tests.engines.steps.plans import kinds, traced
from torch_max_backend import max_backend
from torch_max_backend.engines.steps.planner.plan import JumpStep, Memory
from torch_max_backend.engines.steps.serialize import deserialized, serialized
from torch_max_backend.errors import CompilationError, IndexOutOfBoundsError

STEPS = {"engine": "steps", "fallback": "error", "cache": False}


def _compiled(function: Callable[..., Any], **more: Any) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function, backend=max_backend, fullgraph=True, options=STEPS, **more)


def _zero() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


def _nested(x: Tensor) -> Tensor:
    scale = torch.tensor([2.0, 3.0, 4.0, 5.0])
    return torch.cond(
        x.sum() > 0,
        lambda x: torch.cond(
            x[0, 0] > 1, lambda x: x @ x.t() * scale[0], lambda x: x @ x.t(), (x,)
        ),
        lambda x: (x - scale) @ x.t(),
        (x,),
    )


@pytest.mark.parametrize("sign", [1, -1, 100])
def test_branches(sign: int) -> None:
    compiled = _compiled(_nested, dynamic=True)
    for rows in (3, 5):
        torch.manual_seed(rows)
        x = torch.randn(rows, 4).abs() * sign
        for _ in range(12):  # the last calls are answered by code that is written out
            torch.testing.assert_close(compiled(x), _nested(x))


def _swapped(x: Tensor, rounds: Tensor) -> tuple[Tensor, ...]:
    """What rounds carry changes places, and half of it is another's row."""
    return while_loop(
        lambda i, a, b, c: i < rounds,
        lambda i, a, b, c: (i + 1, b.t().contiguous(), a + c[0], (b * 2).flip(0)),
        (_zero(), x, x + 1, x - 1),
    )


def _filled(x: Tensor, rounds: Tensor) -> tuple[Tensor, ...]:
    """A row of a buffer a round, after a loop in the loop has read the buffer."""

    def body(i: Tensor, a: Tensor, kept: Tensor) -> tuple[Tensor, ...]:
        filled = kept.index_copy(0, i.reshape(1), a.sum(0, keepdim=True))
        _, inner = while_loop(
            lambda j, a: j < i, lambda j, a: (j + 1, a * 0.5 + kept[1]), (_zero(), a)
        )
        chosen = torch.cond(i % 2 == 0, lambda a: a.clone(), lambda a: a.sin(), (inner,))
        return i + 1, chosen, filled

    return while_loop(lambda i, a, kept: i < rounds, body, (_zero(), x, torch.zeros(8, x.shape[1])))


@pytest.mark.parametrize("function", [_swapped, _filled])
def test_loops(function: Callable[..., Any]) -> None:
    compiled = _compiled(function)
    for rounds in (0, 1, 2, 7, 8):
        torch.manual_seed(rounds)
        given = torch.randn(4, 4), torch.tensor(rounds)
        for a, b in zip(compiled(*given), function(*given), strict=True):
            torch.testing.assert_close(a, b)


def test_a_loop_writes_to_what_it_carries_in_place() -> None:
    def function(x: Tensor, rounds: Tensor) -> list[Tensor]:
        found = torch.ops.higher_order.while_loop(
            lambda i, kept, rounds, x: i < rounds,
            lambda i, kept, rounds, x: (i + 1, kept.index_copy(0, i.reshape(1), x * i)),
            (_zero(), torch.zeros(64, 8)),
            (rounds, x),
        )
        return list(found)

    plan, executable = traced(function, [torch.randn(1, 8), torch.tensor(5)])
    assert kinds(plan)["tmb_scatter_rows"] == 1
    large = [n for n, m in enumerate(plan.memory) if m.size == 64 * 8]
    writers = [s for s in plan.steps if any(p.memory in large for p in s.outputs)]
    assert [type(plan.memory[n]) for n in large] == [Memory]
    assert len(writers) == 2  # the zeros before the loop, and a row in it
    x = torch.randn(1, 8)
    count, kept = executable([x, torch.tensor(5)])
    assert count == 5
    torch.testing.assert_close(kept[:5], x * torch.arange(5)[:, None])
    assert not kept[5:].any()


def test_only_what_runs_checks_its_indices() -> None:
    def function(x: Tensor, index: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x, i: x[i] * 2, lambda x, i: x[:2] + 1, (x, index))

    compiled = _compiled(function)
    bad = torch.tensor([0, 9])
    x = torch.ones(4, 3)
    torch.testing.assert_close(compiled(-x, bad), -x[:2] + 1)
    with pytest.raises(IndexOutOfBoundsError):
        compiled(x, bad)
    torch.testing.assert_close(compiled(x, bad % 4), x[bad % 4] * 2)


def _steps(x: Tensor, steps: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    carried, kept = scan(lambda c, s: (c * 0.5 + s, c - s @ weight), x, steps)
    mapped = map_over(lambda s, w: torch.tanh(s @ w), steps, weight)
    return carried, kept, mapped


@pytest.mark.parametrize("dynamic", [False, True])
def test_scan_and_map_over_many_steps_are_loops(dynamic: bool) -> None:
    compiled = _compiled(_steps, dynamic=dynamic)
    for count in (40, 50) if dynamic else (40,):
        torch.manual_seed(count)
        ours = [torch.randn(4), torch.randn(count, 4), torch.randn(4, 4) / 2]
        theirs = [t.clone().requires_grad_() for t in ours]
        ours = [t.requires_grad_() for t in ours]
        for call, given in ((compiled, ours), (_steps, theirs)):
            sum(t.sin().sum() for t in call(*given)).backward()  # type: ignore[union-attr]
        with torch.no_grad():
            for a, b in zip(compiled(*ours), _steps(*theirs), strict=True):
                torch.testing.assert_close(a, b)
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-4)


def test_jumps_survive_the_disk_and_lead_somewhere() -> None:
    plan, _ = traced(
        lambda x: [torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))], [torch.ones(3)]
    )
    read = deserialized(serialized(plan))
    jumps = [s for s in read.steps if isinstance(s, JumpStep)]
    assert jumps == [s for s in plan.steps if isinstance(s, JumpStep)]
    assert jumps
    damaged = serialized(plan).replace(b'["jump",', b'["jump",9')
    with pytest.raises(CompilationError, match="leads to no step"):
        deserialized(damaged)


class _EnoughError(Exception):
    pass


def _enough(*_: object) -> None:
    raise _EnoughError


@pytest.mark.parametrize("calls_before", [1, 12])
def test_an_endless_loop_can_be_interrupted(calls_before: int) -> None:
    def counted(last: Tensor) -> Tensor:
        return while_loop(lambda i: i != last, lambda i: (i + 1,), (_zero(),))[0]

    compiled = _compiled(counted)
    for _ in range(calls_before):  # the last calls are answered by code that is written out
        assert compiled(torch.tensor(5)).item() == 5
    before = signal.signal(signal.SIGALRM, _enough)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(_EnoughError):
            compiled(torch.tensor(-1))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert compiled(torch.tensor(7)).item() == 7


@pytest.mark.parametrize("calls_before", [1, 12])
def test_a_loop_goes_on_after_a_pause(calls_before: int) -> None:
    def counted(last: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        return while_loop(lambda i, x: i < last, lambda i, x: (i + 1, x * -1), (_zero(), x))

    compiled = _compiled(counted)
    x = torch.tensor([2.0, 3.0])
    for _ in range(calls_before):
        compiled(torch.tensor(5), x)
    begin = time.monotonic()
    rounds = 0
    while time.monotonic() - begin < 0.5:
        rounds = 4 * rounds + 10_001
        found, values = compiled(torch.tensor(rounds), x)
        assert found.item() == rounds
        torch.testing.assert_close(values, x if rounds % 2 == 0 else -x)
