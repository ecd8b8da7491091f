"""A process that ends while its workers compile, however it ends, leaves none behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

_BACKGROUND = """
import sys, threading, time
from types import SimpleNamespace
from torch_max_backend.engines.max import worker
from torch_max_backend.driver.background import Background

class Sys:
    executable = sys.argv[1]

worker.sys = Sys
module = SimpleNamespace(mlir_module=SimpleNamespace(bytecode=b""))
function = Background(lambda a: a, lambda: worker.compile_elsewhere(module, [], "a graph"))
while not worker._running:
    time.sleep(0.01)
print(next(iter(worker._running)).pid, flush=True)
"""

_BUILDING = """
import atexit, threading, time

def left():
    print([t.name for t in threading.enumerate() if t.name == THREAD], flush=True)

atexit.register(left)  # before the package's own, so it runs after them
from torch_max_backend.driver.background import THREAD, Background

started = threading.Event()

def build():
    started.set()
    end = time.monotonic() + 1200
    while time.monotonic() < end:
        time.sleep(0.01)

function = Background(lambda a: a, build)
started.wait()
"""

_PARENT = """
import subprocess, sys, time
child = [sys.executable, "-c", sys.argv[1]]
import os
worker = subprocess.Popen([*child, str(os.getpid())], stdout=subprocess.PIPE, text=True)
worker.stdout.readline()
print(worker.pid, flush=True)
time.sleep(1200)
"""

_CHILD = """
import sys, time
from torch_max_backend.engines.max.worker import _end_with
_end_with(int(sys.argv[1]))
print("ready", flush=True)
time.sleep(1200)
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a parent's end")


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _ends(pid: int, seconds: float = 300) -> bool:
    end = time.monotonic() + seconds
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not _alive(pid)


@linux
def test_a_process_that_ends_kills_its_workers(tmp_path: Path) -> None:
    fake = tmp_path / "worker.sh"
    fake.write_text("#!/bin/sh\nexec sleep 1200\n")
    fake.chmod(0o700)
    process = subprocess.Popen(
        [sys.executable, "-c", _BACKGROUND, str(fake)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "TORCH_MAX_BACKEND_COMPILE_JOBS": "2"},
    )
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    # 0.3 s where nothing else runs; without the kill it would be twenty minutes.
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0
    assert _ends(worker)
    assert "failed" not in said  # nobody is served any more
    assert [p.name for p in tmp_path.glob("torch_max_backend-*/module.mlirbc")] == []


def test_no_thread_builds_on_while_the_interpreter_goes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BUILDING], capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_process_takes_its_worker_along(number: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, _CHILD], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    assert _alive(worker)
    parent.send_signal(number)
    parent.wait(600)
    assert _ends(worker)


@linux
def test_a_worker_whose_parent_has_ended_does_not_start() -> None:
    done = subprocess.run([sys.executable, "-c", _CHILD, "1"], capture_output=True, timeout=600)
    assert done.returncode == 1
    assert done.stdout == b""
