"""A team whose threads share one core, as where several processes compute at once."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.process.program import ROOT, finish, start

pytestmark = pytest.mark.xdist_group("steps")

PROGRAM = """
import ctypes, os
import torch
from tests.process.program import compiled, rows
from torch_max_backend.engines.steps.building import runtime_libraries

torch.set_num_threads(2)
x = rows(300_000)
total = compiled(lambda v: (v * 2).relu().sum(0), engine="steps", fallback="error")
first = total(x)

name = b"torch_max_backend.team"
find = ctypes.CDLL(str(runtime_libraries()[0])).KGEN_CompilerRT_GetGlobalOrNull
find.restype, find.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_size_t)
lost, alone_until = range(2)
balance = (ctypes.c_int64 * 2).from_address(find(name, len(name)))

balance[alone_until] = 2**62
assert torch.equal(total(x), first), "the calling thread alone adds in the same order"
assert balance[alone_until] == 2**62

balance[:] = 0, 0
core = min(os.sched_getaffinity(0))
for thread in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(thread), {core})
for _ in range(20_000):
    assert torch.equal(total(x), first)
    if balance[alone_until]:
        break
print("noticed" if balance[alone_until] else "not noticed")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads are bound to a core")
def test_a_team_on_one_core_leaves_the_work_to_the_calling_thread(lent_libraries: Any) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    # By default OpenMP's threads wait in a loop. The tests' own setting has them sleep, and nothing
    # would be lost.
    environment.pop("OMP_WAIT_POLICY", None)
    process = start(PROGRAM, environment)
    out, err = finish(process)
    assert process.returncode == 0, err
    assert out == "noticed\n", err
