"""Parameters move to huge pages: their values stay, and whoever cannot have such pages goes on."""

from __future__ import annotations

import mmap
import os
import re
import subprocess
import sys

import pytest
import torch
from torch import nn

from torch_max_backend.process.background_threads import BackgroundThread
from torch_max_backend.runtime import huge_pages

SIZE = 4 * huge_pages.PAGE


def _huge(tensor: torch.Tensor) -> int:
    """Bytes in huge pages of the mapping that a tensor lies in."""
    address, found = tensor.data_ptr(), False
    with open("/proc/self/smaps") as file:
        for line in file:
            span = re.match("([0-9a-f]+)-([0-9a-f]+) ", line)
            if span:
                found = int(span[1], 16) <= address < int(span[2], 16)
            elif found and line.startswith("AnonHugePages:"):
                return int(line.split()[1]) * 1024
    return 0


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A process that has asked for nothing; how many bytes are asked for from now on."""
    monkeypatch.setattr(huge_pages, "_over", False)
    monkeypatch.setattr(huge_pages, "_asked", set())
    monkeypatch.setattr(huge_pages._thread, "later", lambda work: work())
    monkeypatch.setattr(huge_pages, "_REST", 0)
    asked: list[int] = []
    madvise = huge_pages._madvise()

    def noted(address: int, size: int, advice: int) -> int:
        asked.append(size)
        return madvise(address, size, advice)

    monkeypatch.setattr(huge_pages, "_madvise", lambda: noted)
    return asked


def _filled(size: int = SIZE) -> torch.Tensor:
    """Numbers in memory of its own, which was never in huge pages."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor = torch.frombuffer(memory, dtype=torch.float32)
    return tensor.copy_(torch.arange(size // 4))


def test_memory_moves_and_values_stay(fresh: list[int]) -> None:
    probe = _filled()
    first = huge_pages._pages(probe).start
    if not huge_pages._offered() or huge_pages._madvise()(
        first, huge_pages.PAGE, huge_pages._COLLAPSE
    ):
        pytest.skip("the system has no huge pages")
    fresh.clear()
    tensor = _filled()
    address, before = tensor.data_ptr(), _huge(tensor)
    huge_pages.move_later([tensor])
    assert tensor.data_ptr() == address
    assert torch.equal(tensor, _filled())
    assert _huge(tensor) >= before + SIZE - huge_pages.PAGE
    assert sum(fresh) >= SIZE - huge_pages.PAGE
    huge_pages.move_later([tensor])
    assert sum(fresh) < SIZE + 1, "asked for twice"


def test_whose_pages_are_not_asked_for(fresh: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    huge_pages.move_later([_filled(huge_pages.PAGE // 2), _filled().reshape(2, -1).t()])
    assert not fresh
    monkeypatch.setenv("TORCH_MAX_BACKEND_HUGE_PAGES", "0")
    huge_pages.move_later([_filled()])
    assert not fresh


def test_a_system_that_has_none_left_is_not_asked_again(
    fresh: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def refuse(*arguments: int) -> int:
        calls.append(arguments)
        huge_pages.ctypes.set_errno(huge_pages.errno.ENOMEM)
        return -1

    monkeypatch.setattr(huge_pages, "_offered", lambda: True)
    monkeypatch.setattr(huge_pages, "_madvise", lambda: refuse)
    tensors = [_filled(2 * SIZE), _filled(2 * SIZE)]
    huge_pages.move_later(tensors)
    assert len(calls) == 1


FORKS = """
import os, torch
from torch_max_backend.runtime import huge_pages
assert not huge_pages._over
pid = os.fork()
if not pid:
    os._exit(not huge_pages._over)
assert not os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
assert huge_pages._over
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_processes_that_share_their_pages_ask_for_none() -> None:
    subprocess.run([sys.executable, "-c", FORKS], check=True)


def test_parameters_of_a_graph_that_is_called_often(
    fresh: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huge_pages, "_offered", lambda: True)
    layer = nn.Linear(1024, SIZE // 4096).eval()
    function = torch.compile(layer, backend="max", options={"engine": "steps"}, dynamic=True)
    with torch.no_grad():
        for rows in range(2, 14):
            x = torch.randn(rows, 1024)
            torch.testing.assert_close(function(x), layer(x), rtol=1e-4, atol=1e-4)
            if rows == 6:
                assert not fresh
    pages = huge_pages._pages(layer.weight)
    assert pages
    assert sum(fresh) == len(pages) * huge_pages.PAGE


def test_the_thread_ends_when_there_is_nothing_left() -> None:
    done: list[int] = []
    background = BackgroundThread("test", niceness=5)
    background.later(lambda: done.append(os.getpriority(os.PRIO_PROCESS, 0)))
    background.later(lambda: done.append(1))
    thread = background._thread
    assert thread is not None
    thread.join(timeout=60)
    assert done == [5 if sys.platform == "linux" else 0, 1]
    assert not thread.is_alive()
    background.later(lambda: done.append(2))
    background.drop(timeout=60)
    assert done[1:] in ([1], [1, 2])
