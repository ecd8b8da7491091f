"""Several processes: with one cache, interrupted, and what a process gives back."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from tests.process.conftest import Warm
from tests.process.program import finish, start
from tests.support.groups import compile_group

INTERRUPTED = """
import time
import torch
from max import engine
from tests.support.module_cache import kept_kernels
from torch_max_backend import max_backend

begin = engine.InferenceSession.compile_async

def compile_async(*args, **kwargs):
    before = time.process_time()
    made = begin(*args, **kwargs)
    print("compiling", before, flush=True)
    return made

engine.InferenceSession.compile_async = compile_async
kept_kernels().__enter__()

def long(x):  # A kernel for each size: MAX needs a minute of CPU time for them.
    return [torch.softmax(x[:n, n:], 1) for n in range(1, 60)]

torch.compile(long, backend=max_backend)(torch.ones(60, 61))
"""

WORKER = """
import subprocess, sys
from types import SimpleNamespace
from torch_max_backend.engines.max import worker

class Sys:
    executable = sys.argv[1]

class Popen(subprocess.Popen):
    def communicate(self, *args, **kwargs):
        with open(sys.argv[2]) as fifo:
            print(fifo.read().strip(), flush=True)
        return super().communicate(*args, **kwargs)

worker.sys = Sys
worker.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": Popen})
module = SimpleNamespace(mlir_module=SimpleNamespace(bytecode=b""))
try:
    worker.compile_elsewhere(module, [], "a graph")
except KeyboardInterrupt:
    print(sorted(worker._running))
"""

FREED = """
import gc, weakref
import torch
from tests.process.program import Net, compiled, rows
from torch_max_backend.cache import store
from torch_max_backend.cache import loaded_models
from torch_max_backend.engines.max.loading import load_serialized

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

# Dynamo itself keeps up to a megabyte of each compile.
x, sizes = rows(200_000), []  # 6.4 MB
for i in range(25):
    net = Net()
    parameter = weakref.ref(net.scale)
    function = compiled(net)
    with torch.no_grad():
        y = function(x)
    assert len(loaded_models._held) == 1
    key = next(iter(loaded_models._held)).split()[0]
    del net, function, y
    torch._dynamo.reset()
    gc.collect()
    assert parameter() is None
    assert not (loaded_models._held or loaded_models._by_user or loaded_models._busy)
    sizes.append(resident())
grown = (sizes[-1] - sizes[9]) / 15
assert grown < 3_000_000, f"{grown:.0f} bytes a model"

artifact = store.get(key).artifact
sizes = []
for i in range(120):
    load_serialized(artifact)
    sizes.append(resident())
grown = (sizes[-1] - sizes[19]) / 100
assert grown < len(artifact) / 4, f"{grown:.0f} bytes a load"
"""


@compile_group("processes", weight=2)
def test_processes_that_want_one_artifact_compile_it_once(warm: Warm) -> None:
    stored = [key for said in warm.said for what, key in said if what == "stored"]
    found = [key for said in warm.said for what, key in said if what == "found"]
    assert len(stored) == 1
    assert found == stored


@compile_group("processes")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_models_that_nobody_uses_give_their_memory_back(warm: Warm) -> None:
    process = start(FREED, warm.environment)
    _, err = finish(process)
    assert process.returncode == 0, err


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _free(lock: Path) -> bool:
    with open(lock) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


@compile_group("processes")
def test_control_c_ends_a_process_that_compiles(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "TORCH_MAX_BACKEND_CACHE": "0",
        "TORCH_MAX_BACKEND_ENGINE": "max",
        # Where MAX has compiled it before, it is done before the signal arrives.
        "MODULAR_CACHE_DIR": str(tmp_path / "max"),
    }
    before = _seconds_of_children()
    process = start(INTERRUPTED, environment)
    assert process.stdout is not None
    said = process.stdout.readline().split()
    assert said[:1] == ["compiling"], finish(process)
    process.send_signal(signal.SIGINT)
    _, err = finish(process)
    # A compile that is waited for takes five times what is spent before it, or more.
    limit = 4 * float(said[1])
    assert _seconds_of_children() - before < limit, "it waited for the compile"
    assert "KeyboardInterrupt" in err
    assert process.returncode == -signal.SIGINT
    theirs = (tmp_path / "max", *tmp_path.glob("torchinductor*"))
    left = [
        p for p in tmp_path.rglob("*") if p.is_file() and not any(t in p.parents for t in theirs)
    ]
    assert all(p.suffix == ".lock" for p in left), left
    locks = [p for p in left if p.suffix == ".lock" and p.parent.name.startswith("torch_max")]
    assert locks
    assert all(map(_free, locks))


def test_control_c_ends_a_worker(tmp_path: Path) -> None:
    fake, number, never = tmp_path / "worker.sh", tmp_path / "pid", tmp_path / "never"
    os.mkfifo(number)
    os.mkfifo(never)
    fake.write_text(f"#!/bin/sh\necho $$ > {number}\nexec cat {never}\n")
    fake.chmod(0o700)
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TORCH_MAX_BACKEND_COMPILE_JOBS": "1"}
    process = start(WORKER, environment, str(fake), str(number))
    assert process.stdout is not None
    pid = process.stdout.readline().strip()
    assert pid.isdigit(), finish(process)
    process.send_signal(signal.SIGINT)
    out, err = finish(process)
    assert process.returncode == 0, err
    assert out == "[]\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    assert not list(tmp_path.glob("torch_max_backend-*/module.mlirbc"))
