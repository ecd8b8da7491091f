"""Programs as compiled code: built in the background at the lowest priority, and swapped in.

A fused function takes the same row as the interpreter, so that the first word of the row, its
address, is all that changes: a call that is running takes either. Libraries are kept by content.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable

from torch_max_backend.engines.steps.fused_source import Fusible, fused_source, fused_symbol
from torch_max_backend.engines.steps.libraries import exported, kept
from torch_max_backend.engines.steps.rowwise import Rowwise
from torch_max_backend.errors import CompilationError
from torch_max_backend.log import get_logger
from torch_max_backend.process import fork_safety

log = get_logger("steps")

# Programs of tiles with fewer instructions gain nothing that would be worth a library.
LEAST = 2
_PRIORITY = 19
_NAME = "torch_max_backend-fusion"

_addresses: dict[Fusible, int] = {}
_refused: set[Fusible] = set()
_waiting: queue.SimpleQueue[tuple[tuple[Fusible, ...], Callable[[], None]]] = queue.SimpleQueue()
_lock = fork_safety.lock()
_thread: threading.Thread | None = None


def address(program: Fusible | None) -> int:
    """The address of the fused function of a program, 0 while there is none."""
    return 0 if program is None else _addresses.get(program, 0)


def build(programs: Iterable[Fusible | None]) -> None:
    """Build and load the fused functions of programs; what cannot be built stays interpreted."""
    wanted = _wanted(programs)
    if not wanted:
        return
    text, modules = fused_source(wanted)
    symbols = {fused_symbol(p): f"{len(p.instructions)} instructions" for p in wanted}
    try:
        found = exported("fused", text, symbols, modules)
    except CompilationError as e:
        log.warning("Programs stay interpreted: %s", e)
        _refused.update(wanted)
        return
    _addresses.update((p, found[fused_symbol(p)]) for p in wanted)


def build_later(programs: Iterable[Fusible | None], then: Callable[[], None]) -> None:
    """The same, by a thread; ``then`` is called when it is done, at once if nothing has to be
    compiled."""
    global _thread
    wanted = _wanted(programs)
    if not wanted:
        return
    text, modules = fused_source(wanted)
    if kept("fused", text, [fused_symbol(p) for p in wanted], modules):
        build(wanted)
        then()
        return
    _waiting.put((tuple(wanted), then))
    with _lock:
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_work, name=_NAME, daemon=True)
            _thread.start()


def _wanted(programs: Iterable[Fusible | None]) -> list[Fusible]:
    return [
        p
        for p in dict.fromkeys(programs)
        if p is not None
        and p not in _addresses
        and p not in _refused
        and (isinstance(p, Rowwise) or sum(i.name != "constant" for i in p.instructions) >= LEAST)
    ]


def _work() -> None:
    # Of this thread alone, on Linux: the compiler that it starts inherits it.
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)
    while True:
        try:
            programs, then = _waiting.get(timeout=1)
        except queue.Empty:
            return
        build(programs)
        then()


@fork_safety.in_child
def _in_child() -> None:
    """The thread is the parent's, and so is what it was asked."""
    global _thread, _waiting
    _thread, _waiting = None, queue.SimpleQueue()
