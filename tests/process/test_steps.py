"""Processes and threads that run graphs as steps: forked children go on compiling and calling."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.process.program import ROOT, Net, compiled, expected, finish, rows, start

pytestmark = pytest.mark.xdist_group("steps")

# Each child ends as Python does, and the alarm ends one that hangs.
CHILDREN = """
import multiprocessing, os, signal, sys, threading
import torch
from tests.process.program import TIMEOUT, Net, compiled, expected, rows
from torch_max_backend import ForkError
from torch_max_backend.process import fork_safety

torch.set_num_threads(2)
x, net = rows(3000), Net()
same = compiled(net, engine="steps", fallback="error", cache=CACHE)
trained = compiled(Net(2), engine="steps", fallback="error", cache=CACHE)

def calls():
    with torch.no_grad():
        torch.testing.assert_close(same(x), expected(net, x))

def trains():
    parameters = list(trained._orig_mod.parameters())
    (grad,) = torch.autograd.grad(trained(x).sum(), parameters)
    torch.testing.assert_close(grad, (x * (x * parameters[0] > 0)).sum(0).detach())

def compiles():
    new = compiled(lambda v: (v * 2).relu().sum(0), engine="steps", fallback="error", cache=CACHE)
    torch.testing.assert_close(new(x), (x * 2).relu().sum(0))

def threads():
    def call():
        try:
            calls()
        except BaseException as e:
            failed.append(e)
    failed = []
    them = [threading.Thread(target=call) for _ in range(3)]
    for t in them:
        t.start()
    for t in them:
        t.join()
    assert not failed, failed

def needs_max():
    function = lambda v: (v * 3).relu()
    torch.testing.assert_close(compiled(function, engine="max", fallback="eager")(x), function(x))
    torch._dynamo.reset()
    try:
        compiled(function, engine="max", fallback="error", cache=False)(x)
    except ForkError as e:
        assert "Steps run as ever" in str(e)
    else:
        raise AssertionError("no error")

def nested():
    child(calls)
    child(compiles)

def child(action):
    pid = os.fork()
    if not pid:
        signal.alarm(TIMEOUT // 2)
        action()
        calls()
        assert not fork_safety.inherited()
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 7, f"{action.__name__}: {code}"

calls()
compiles()
assert not fork_safety._used
# Backward in a child alone: torch itself refuses it where the parent has run one.
for action in (calls, trains, compiles, threads, nested, needs_max):
    child(action)
for action in (calls, compiles):
    process = multiprocessing.get_context("fork").Process(target=action)
    process.start()
    process.join(TIMEOUT // 2)
    assert process.exitcode == 0, process.exitcode

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        with torch.no_grad():
            return same(x)[i]

loader = torch.utils.data.DataLoader(
    Rows(), 2, num_workers=2, multiprocessing_context="fork", timeout=TIMEOUT // 2
)
torch.testing.assert_close(torch.cat(list(loader)), expected(net, x)[:4])
calls()
print("all ended")
"""


@pytest.mark.parametrize("cache", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_forked_children_compile_and_call(cache: bool, lent_libraries: Any) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = start(CHILDREN.replace("CACHE", str(cache)), environment)
    out, err = finish(process)
    assert process.returncode == 0, err
    assert out == "all ended\n", err


THREADS, CALLS = 6, 30


def together(work: Callable[[int], None]) -> None:
    begin = threading.Barrier(THREADS, timeout=600)

    def run(thread: int) -> None:
        begin.wait()
        work(thread)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run, thread) for thread in range(THREADS)]:
            done.result(1200)


def test_threads_call_one_function_with_sizes_of_their_own() -> None:
    torch._dynamo.reset()
    net = Net()
    function = compiled(net, engine="steps", cache=False)

    @torch.no_grad()
    def work(thread: int) -> None:
        for i in range(CALLS):
            x = rows(2 + (thread + i) % 7) * (thread + 1)
            torch.testing.assert_close(function(x), expected(net, x))

    work(0)
    together(work)


def test_more_sizes_than_are_kept() -> None:
    torch._dynamo.reset()
    function = compiled(lambda x: (x * 2).sum(0) + x[0], engine="steps", cache=False)  # type: ignore[arg-type]

    def work(thread: int) -> None:
        for i in range(3 * CALLS):
            x = torch.full((2 + (13 * thread + i) % 90, 4), float(thread + i))
            torch.testing.assert_close(function(x), (x * 2).sum(0) + x[0])

    work(0)
    together(work)


def test_threads_plan_equal_graphs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_max_backend.engines.steps import planned

    torch._dynamo.reset()
    plan, planned_graphs = planned.planned, []

    def counted(trace: Any) -> Any:
        planned_graphs.append(trace)
        return plan(trace)

    monkeypatch.setattr(planned, "planned", counted)
    nets = [Net(1 + thread).double() for thread in range(THREADS)]

    @torch.no_grad()
    def work(thread: int) -> None:
        names: dict[str, Any] = {"net": nets[thread]}
        exec("def call(x): return net(x)", names)
        function = compiled(names["call"], engine="steps", cache=False)
        for i in range(CALLS):
            x = rows(2 + i % 5, torch.float64)
            torch.testing.assert_close(function(x), expected(nets[thread], x))

    together(work)
    assert len(planned_graphs) == 1


def test_a_failing_kernel_leaves_the_table_usable() -> None:
    torch._dynamo.reset()
    function = torch.compile(
        lambda table, at: table[at] * 2,
        backend="max",
        dynamic=True,
        options={"engine": "steps", "cache": False},
    )
    table = torch.randn(5, 3)

    def call(number: int) -> None:
        at = torch.tensor([0, number, 1])
        if number < 5:
            torch.testing.assert_close(function(table, at), table[at] * 2)
        else:
            with pytest.raises(IndexError):
                function(table, at)

    for number in (1, 7, 2, 9, 3, 4, 5, 0):
        call(number)
    together(lambda thread: [call((thread + i) % 8) for i in range(CALLS)] and None)  # type: ignore[func-returns-value]


@pytest.mark.parametrize("seed", range(3))
def test_arguments_that_are_no_plain_tensors(seed: int) -> None:
    torch._dynamo.reset()

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y.mul_(2)
        return (x + y).relu() @ y.t(), x.sum(-1)

    made = torch.compile(
        function, backend="max", dynamic=True, options={"engine": "steps", "cache": False}
    )
    base = torch.randn(8, 12, generator=torch.Generator().manual_seed(seed))
    arguments: list[Callable[[], tuple[Tensor, Tensor]]] = [
        lambda: (base[:, :6].clone(), base[:, 6:].clone()),
        lambda: (base[:, :6], base.clone()[:, 6:]),
        lambda: (base[:6, ::2].t().t(), base.t().clone().t()[:6, ::2]),
        lambda: (base[:1, :6].expand(8, 6), base[:, :6].clone()),
        lambda: (torch._neg_view(base[:, :6].clone()), base[:, 6:].clone()),
        lambda: (base[:, :6].clone().requires_grad_(), base[:, 6:].clone()),
        lambda: (lambda b: (b[:4, :6], b[4:, :6]))(base.clone()),
    ]
    for make in arguments:
        for grad in (True, False):
            with torch.inference_mode() if not grad else torch.enable_grad():
                ours, theirs = make(), make()
                torch.testing.assert_close(made(*ours), function(*theirs))
                torch.testing.assert_close(ours, theirs)


def test_a_default_device_and_a_graph_without_results() -> None:
    torch._dynamo.reset()

    def writes(x: Tensor) -> None:
        x.add_(1).mul_(x.sum())

    made = torch.compile(
        writes, backend="max", options={"engine": "steps", "cache": False, "min_ops": 0}
    )
    ours, theirs = torch.ones(3), torch.ones(3)
    for _ in range(4):
        with torch.device("cpu"):
            assert made(ours) is None
        writes(theirs)
        torch.testing.assert_close(ours, theirs)
    add = torch.compile(
        lambda x: x * 2 + 1, backend="max", options={"engine": "steps", "cache": False}
    )
    for device in ("meta", "cpu", "meta", "cpu"):
        with torch.device(device):
            torch.testing.assert_close(add(theirs), theirs * 2 + 1)


def test_torchs_profiler_shows_calls() -> None:
    torch._dynamo.reset()
    function = torch.compile(
        lambda x: x * 2 + 1, backend="max", options={"engine": "steps", "cache": False}
    )
    x = torch.ones(3)
    for _ in range(4):
        function(x)
    with torch.profiler.profile() as recorded:
        torch.testing.assert_close(function(x), x * 2 + 1)
    names = [e.name for e in recorded.events() if e.name.startswith("torch_max_backend steps")]
    assert len(names) == 1
    torch.testing.assert_close(function(x), x * 2 + 1)
