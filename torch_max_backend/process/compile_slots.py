"""Who may compile when: one at a time in a process, and a few on the machine."""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from torch_max_backend import environment
from torch_max_backend.process import fork_safety

try:
    import fcntl
except ImportError:  # Windows, where MAX does not run natively anyway
    fcntl = None  # type: ignore[assignment]

# What one compiling process needs at most (measured: 1.3 to 2 GB resident).
_BYTES_PER_COMPILE = 2_500_000_000

# MAX compiles one module at a time in a process.
compile_lock = fork_safety.rlock()
# Graphs are built while another thread compiles, but one at a time: they share kernel libraries.
build_lock = fork_safety.rlock()
# Whether this thread holds a compile slot.
_mine = threading.local()
# File descriptors of the locks that this process holds.
_held: set[int] = set()


def compile_jobs() -> int:
    """How many processes of this user may compile at once on this machine."""
    given = environment.compile_jobs()
    if given is not None:
        return given
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(os.cpu_count() or 1, memory // _BYTES_PER_COMPILE))


def compile_threads(compiles: int) -> int:
    """How many threads each of some compiles that begin now should have: those of cores that have
    nothing to do, since a compiler takes a third more CPU seconds in several threads.

    Args:
        compiles: How many begin.
    """
    idle = (os.cpu_count() or 1) - os.getloadavg()[0]
    return max(1, round(idle / compiles))


@contextmanager
def compile_slot(lock: bool = True) -> Iterator[None]:
    """Hold one of the machine's compile slots (file locks, so a killed process frees its slot).

    A thread that holds one already takes no second one.

    Args:
        lock: Hold the lock that serialises compiles inside this process as well; without it for a
            compile in another process.
    """
    with compile_lock if lock else nullcontext():
        if getattr(_mine, "slot", False):
            yield
            return
        held = _acquire(_slot_names)
        _mine.slot = True
        try:
            yield
        finally:
            _mine.slot = False
            _release(held)


@contextmanager
def compile_place() -> Iterator[bool]:
    """Hold a compile slot; yields whether to compile in this process (True), or in one of its own
    because another thread compiles here already."""
    if compile_jobs() == 1:
        with compile_slot():
            yield True
        return
    with compile_slot(lock=False):
        # Never waits for the lock: others wait for a slot while they hold it.
        here = compile_lock.acquire(blocking=False)
        try:
            yield here
        finally:
            if here:
                compile_lock.release()


@contextmanager
def alone_on_machine(places: Iterable[str]) -> Iterator[None]:
    """In the body, no other process of this user compiles for the same places.

    Args:
        places: What names artifacts. Few share a lock with others, which then wait as well.
    """
    numbers = {hashlib.sha256(place.encode()).digest()[0] for place in places}
    with ExitStack() as stack:
        # In one order for all, so that no two wait for each other.
        for number in sorted(numbers):
            name = f"artifact.{number}.lock"
            stack.callback(_release, _acquire(partial(tuple, (name,))))
        yield


def _slot_names() -> list[str]:
    return [f"compile.{i}.lock" for i in range(compile_jobs())]


def _acquire(names: Callable[[], Iterable[str]]) -> int | None:
    """Lock the first file that is free among those of these names, or wait for one."""
    if fcntl is None:
        return None
    try:
        folder = Path(tempfile.gettempdir()) / f"torch_max_backend-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            return None
        delay = 0.02
        while True:
            for name in names():
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                handle = os.open(folder / name, flags, 0o600)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _held.add(handle)
                    return handle
                except BlockingIOError:
                    os.close(handle)
                except OSError:  # a file system without locks
                    os.close(handle)
                    return None
            time.sleep(delay)
            delay = min(0.1, delay * 1.5)
    except OSError:
        return None  # A courtesy to the machine; without it compiling still works.


def _release(held: int | None) -> None:
    if held is not None:
        _held.discard(held)
        # To close it is not enough: a forked child may have it open.
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)


@fork_safety.in_child
def _in_child() -> None:
    """The locks are the parent's, and free when it ends."""
    for held in _held:
        os.close(held)
    _held.clear()
    _mine.slot = False
