"""Forked children of a process that uses MAX: no hang, no crash, eager's answer or an error."""

from __future__ import annotations

import sys

import pytest

from tests.process.conftest import Warm
from tests.process.program import finish, start
from tests.support.groups import compile_group

# Each child ends as Python does, and the alarm ends one that hangs.
CHILDREN = """
import gc, logging, multiprocessing, os, signal, sys, threading, weakref
import torch
from torch._dynamo import convert_frame
from tests.process.program import TIMEOUT, Net, compiled, expected, rows
from torch_max_backend import ForkError
from torch_max_backend.cache import loaded_models
from torch_max_backend.engines.max import session
from torch_max_backend.process import compile_slots

x = rows()
net, strict_net, ended_net = Net(1), Net(2), Net(3)
same, strict, ended = (
    compiled(net, fallback="eager"), compiled(strict_net), compiled(ended_net, fallback="eager")
)
no_grad = torch.no_grad()
no_grad.__enter__()
kept = same(x)
orphan = ended(x)
strict(x)

def child(action):
    pid = os.fork()
    if not pid:
        signal.alarm(TIMEOUT // 2)
        action()
        sys.exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 7, f"{action.__name__}: {code}"

def refused(function):
    try:
        function(x)
    except ForkError as e:
        assert "forkserver" in str(e)
    else:
        raise AssertionError("no error")

def does_nothing():
    pass

def calls():
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logging.getLogger("torch_max_backend").addHandler(handler)
    for _ in range(3):
        torch.testing.assert_close(same(x), expected(net, x))
    new = compiled(lambda v: (v * 2).relu(), fallback="eager")
    torch.testing.assert_close(new(x), (x * 2).relu())
    assert len(messages) == 1, messages
    assert "one thread" in messages[0]
    assert net.calls.item() == 4

def calls_strict():
    refused(strict)
    refused(compiled(lambda v: (v * 2).relu()))

def trains():
    with torch.enable_grad():
        compiled(Net(5).train(), fallback="eager")(x).sum().backward()
        same(x).sum().backward()
    torch.testing.assert_close(net.scale.grad, (x * (x * net.scale > 0)).sum(0).detach())

def frees():
    global same, strict, ended, kept
    same = strict = ended = kept = None
    torch._dynamo.reset()
    gc.collect()

def frees_results():
    global orphan
    orphan = None

def in_another_process():
    torch.testing.assert_close(same(x), expected(net, x))

class Results(torch.utils.data.Dataset):
    def __len__(self):
        return len(kept)

    def __getitem__(self, i):
        return kept[i] * 2

for action in (does_nothing, calls, calls_strict, trains, frees, frees_results):
    child(action)

loader = torch.utils.data.DataLoader(
    Results(), 2, num_workers=2, multiprocessing_context="fork", timeout=TIMEOUT // 2
)
torch.testing.assert_close(torch.cat(list(loader)), kept * 2)
process = multiprocessing.get_context("fork").Process(target=in_another_process)
process.start()
process.join(TIMEOUT // 2)
assert process.exitcode == 0, process.exitcode

# Other threads hold every lock.
held, done = threading.Event(), threading.Event()

def hold():
    ours = (compile_slots.build_lock, compile_slots.compile_lock, session._session_lock)
    locks = (loaded_models._guard, *ours)
    slot = compile_slots.compile_slot(lock=False)
    with loaded_models.alone("key"), slot, convert_frame.compile_lock:
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait()
        for lock in locks:
            lock.release()

def finds_no_lock():
    torch.testing.assert_close(compiled(lambda v: v.relu() * 3, fallback="eager")(x), x.relu() * 3)
    ours = (compile_slots.build_lock, compile_slots.compile_lock, session._session_lock)
    with loaded_models.alone("key"), ours[0], ours[1], ours[2]:
        loaded_models.keep({}, calls)

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child(finds_no_lock)

# A child that lives on keeps no compile slot.
ready, go = os.pipe(), os.pipe()
pid = os.fork()
if not pid:
    os.write(ready[1], b".")
    os.read(go[0], 1)
    sys.exit(7)
os.read(ready[0], 1)
done.set()
thread.join()
signal.alarm(TIMEOUT // 2)
with compile_slots.compile_slot():
    signal.alarm(0)
os.write(go[1], b".")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

# Results that outlive their model.
del ended, ended_net
same = compiled(net, fallback="eager")
torch._dynamo.reset()
gc.collect()
assert not loaded_models._held
child(frees_results)
child(does_nothing)

torch.testing.assert_close(same(x), expected(net, x))
print("all ended")
"""


@compile_group("processes")
@pytest.mark.skipif(sys.platform != "linux", reason="C++ destructors are left out on Linux alone")
def test_children(warm: Warm) -> None:
    process = start(CHILDREN, {**warm.environment, "TORCH_MAX_BACKEND_COMPILE_JOBS": "1"})
    out, err = finish(process)
    assert process.returncode == 0, err
    assert out == "all ended\n", err
